"""What is refused before weights are read, and what is only warned about."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoConfig, PreTrainedTokenizerFast

from ssd.bench.compatibility import check_chain, context_limit
from ssd.bench.random_weights import FAMILIES, RandomWeights, random_config


def config(**shape: Any) -> Any:
    return random_config(RandomWeights("llama", **shape))


def tokenizer(words: dict[str, int], added: tuple[str, ...] = (), **special: str) -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel(words, unk_token="a"))
    result = PreTrainedTokenizerFast(tokenizer_object=core, **special)
    result.add_tokens(list(added))
    return result


ABC = {"a": 0, "b": 1, "c": 2}


def check(draft: Any, target: Any, draft_tokenizer: Any = None, target_tokenizer: Any = None) -> list[str]:
    return check_chain([draft, target], [draft_tokenizer, target_tokenizer], ["small", "big"])


def test_equal_levels_give_no_warning() -> None:
    assert check(config(), config(), tokenizer(ABC), tokenizer(ABC)) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_supported_families_pass(family: str) -> None:
    assert check_chain([random_config(RandomWeights(family))], [None], ["only"]) == []


@pytest.mark.parametrize(("draft", "target"), [(72, 64), (64, 72)])
def test_padded_vocabulary_is_one_line_with_both_sizes(draft: int, target: int) -> None:
    (line,) = check(config(vocab=draft), config(vocab=target), tokenizer(ABC), tokenizer(ABC))
    assert line.startswith("level 0 (small).vocab_size: ")
    assert "72" in line
    assert "64" in line


def test_shorter_context_is_a_warning_with_the_position() -> None:
    (line,) = check(config(positions=16), config(positions=64))
    assert line.startswith("level 0 (small).max_position_embeddings: stops drafting at position 16")
    assert check(config(positions=64), config(positions=16)) == []


def test_context_limit_reads_learned_positions() -> None:
    assert context_limit(random_config(RandomWeights("gpt2", positions=16))) == 16


def test_tokenizers_are_compared_entry_by_entry() -> None:
    other = {"a": 0, "c": 1, "b": 2}
    with pytest.raises(ValueError, match=r"level 0 \(small\).tokenizer: 2 entries differ .*'b' is 2 against 1; 'c'"):
        check(config(), config(), tokenizer(other), tokenizer(ABC))


def test_added_tokens_count_as_entries() -> None:
    with pytest.raises(ValueError, match=r"1 entries differ .*'<x>' is absent against 3"):
        check(config(), config(), tokenizer(ABC), tokenizer(ABC, added=("<x>",)))


def test_only_the_first_differing_entries_are_shown() -> None:
    many = {f"w{i}": i for i in range(50)}
    shifted = {f"w{i}": 49 - i for i in range(50)}
    with pytest.raises(ValueError, match="50 entries differ") as caught:
        check(config(), config(), tokenizer(shifted), tokenizer(many))
    assert len(str(caught.value)) < 250


def test_special_roles_differing_is_a_warning() -> None:
    (line,) = check(config(), config(), tokenizer(ABC, eos_token="b"), tokenizer(ABC, eos_token="c"))
    assert "level 0 (small).tokenizer.eos_token_id: 1 against 2" in line


def test_a_draft_without_tokenizer_inherits_the_targets() -> None:
    assert check(config(), config(), None, tokenizer(ABC)) == []


def test_a_target_without_tokenizer_is_said_to_be_incomparable() -> None:
    (line,) = check(config(), config(), tokenizer(ABC), None)
    assert "cannot be compared" in line


def test_an_embedding_smaller_than_the_tokenizer_is_refused() -> None:
    words = {f"w{i}": i for i in range(70)}
    with pytest.raises(ValueError, match=r"level 0 \(small\).vocab_size: 64 rows, .* id 69"):
        check(config(vocab=64), config(vocab=72), None, tokenizer(words))


@pytest.mark.parametrize("kind", ["mamba", "rwkv", "jamba", "recurrent_gemma", "qwen3_next", "falcon_h1", "bamba"])
def test_recurrent_and_hybrid_models_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"level 0 \(small\)\.(model_type|layer\w*_types?).*not addressed by position"):
        check(AutoConfig.for_model(kind), config())


@pytest.mark.parametrize("layer", ["linear_attention", "chunked_attention"])
def test_layers_without_positional_slots_are_refused(layer: str) -> None:
    target = random_config(RandomWeights("qwen3"))
    target.layer_types = ["full_attention", layer]
    with pytest.raises(ValueError, match=rf"level 1 \(big\)\.layer_types: {layer} in qwen3"):
        check(config(), target)


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
def test_rope_scaling_that_looks_at_the_batch_is_refused(scaling: str) -> None:
    target = config()
    target.rope_parameters = {"rope_type": scaling, "rope_theta": 1e4, "factor": 2.0}
    with pytest.raises(ValueError, match=rf"level 1 \(big\)\.rope_parameters: rope_type '{scaling}'.*longest row"):
        check(config(), target)


def test_rope_scaling_per_kind_of_layer_is_seen() -> None:
    target = random_config(RandomWeights("gemma3_text"))
    target.rope_parameters["full_attention"]["rope_type"] = "dynamic"
    with pytest.raises(ValueError, match="dynamic"):
        check(config(), target)


def test_scaling_by_a_fixed_factor_is_allowed() -> None:
    target = config()
    target.rope_parameters = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    assert check(config(), target) == []


def test_encoder_decoder_is_refused() -> None:
    with pytest.raises(ValueError, match=r"level 1 \(big\)\.is_encoder_decoder: True \(t5\)"):
        check(config(), AutoConfig.for_model("t5"))


def test_positions_from_the_padding_mask_are_refused() -> None:
    with pytest.raises(ValueError, match="ALiBi"):
        check(config(), AutoConfig.for_model("bloom"))


def test_look_up_only_at_level_0() -> None:
    assert check(None, config()) == []
    with pytest.raises(ValueError, match=r"level 1 \(n\): .* only be level 0"):
        check_chain([config(), None, config()], [None] * 3, ["a", "n", "b"])
    with pytest.raises(ValueError, match=r"level 1 \(big\): .* only be level 0"):
        check(config(), None)
    with pytest.raises(ValueError, match="target must be a model"):
        check_chain([None], [None], ["n"])


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="1 configs, 2 tokenizers"):
        check_chain([config()], [None, None], ["a"])
