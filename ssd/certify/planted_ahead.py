"""Negative controls of the pipelined schedule: faults of matching, making and handing up drafts made ahead."""

from __future__ import annotations

from ssd.certify import pipeline_faults as faults
from ssd.certify.planted import Planted

PLANTED_AHEAD: tuple[Planted, ...] = (
    Planted(
        "branch matched by number alone",
        "ssd.pipeline.drafter.Drafter._branch",
        "A draft made ahead is used when as many tokens were accepted as it was made for, whichever token came next.",
        faults.branch_by_number_alone,
    ),
    Planted(
        "branch matched by its text alone",
        "ssd.pipeline.drafter.Drafter._branch",
        "A draft made ahead is used after the text it was made for, though its limit and key are others.",
        faults.branch_by_text_alone,
    ),
    Planted(
        "branch made with another key",
        "ssd.pipeline.drafter.Drafter.draft_ahead",
        "A draft made ahead is drawn with other uniforms than it would be later.",
        faults.branch_with_another_key,
    ),
    Planted(
        "branch made with the limit of the round before",
        "ssd.pipeline.drafter.Drafter.draft_ahead",
        "A draft made ahead may be longer than what is left when it is used.",
        faults.branch_with_the_former_limit,
    ),
    Planted(
        "slots of a refused draft reused",
        "ssd.pipeline.drafter.Drafter._set_text",
        "Slots beyond the accepted tokens are believed to hold the text that came instead.",
        faults.slots_of_a_refused_draft,
    ),
    Planted(
        "slots of a branch not copied",
        "ssd.pipeline.drafter.Drafter._copy",
        "A row that takes over a text believes to have its slots as well.",
        faults.slots_not_copied,
    ),
    Planted(
        "unlikely branch dropped",
        "ssd.pipeline.drafter.Drafter._adopt",
        "A draft made ahead is thrown away when its first token is not its level's likeliest.",
        faults.unlikely_branch_dropped,
    ),
    Planted(
        "laws of another row handed up",
        "ssd.pipeline.branches.reply",
        "Drafts of a batch come with the laws of the row before.",
        faults.laws_of_another_row,
    ),
    Planted(
        "branch in a row of another request",
        "ssd.pipeline.worker.Worker._begin",
        "A draft is made ahead with the sampling settings and processors of another request.",
        faults.settings_of_another_row,
    ),
)
