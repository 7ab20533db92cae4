"""Every configuration composes, and what is misspelt or of the wrong type fails while composing."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import MISSING, OmegaConf

from experiments import schema
from experiments.job import command
from experiments.run import CONF, dotted
from experiments.schema import plain_config, run_spec
from ssd.bench import spec as specs
from ssd.bench.dataset_spec import DatasetSpec, read_spec
from ssd.bench.json_files import dumps
from ssd.bench.run_id import run_id
from ssd.bench.spec import CHAINS, RunSpec, parse, read_chain
from ssd.core.requests import Sampling

EXPERIMENTS = [p for p in sorted((CONF / "experiment").glob("*.yaml")) if "@package _global_" in p.read_text()]


@pytest.fixture(autouse=True)
def composing():
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def composed(*overrides: str) -> dict:
    config = compose("config", overrides=list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(config)  # as in a run, where a label may name a chosen option
    return plain_config(OmegaConf.masked_copy(config, [key for key in config if key != "hydra"]))


def spec_of(*overrides: str) -> RunSpec:
    return run_spec(composed(*overrides))


def options() -> list[str]:
    files = [p for p in sorted(CONF.glob("*/*.yaml")) if p.parent.name != "experiment"]
    found = [f"method=[{p.stem}]" if p.parent.name == "method" else f"{p.parent.name}={p.stem}" for p in files]
    return [*found, *(f"chain={p.stem}" for p in sorted(CHAINS.glob("*.yaml")))]


@pytest.mark.parametrize("option", options())
def test_every_option_of_every_group_composes(option):
    spec_of(option)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_every_experiment_composes_for_each_of_its_jobs(path):
    config = compose("config", overrides=[f"experiment={path.stem}"], return_hydra_config=True)
    parameters = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
    (jobs,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(parameters), None)
    ids = {run_id(spec_of(f"experiment={path.stem}", *job)) for job in jobs}
    assert len(ids) == len(jobs)


def test_the_demo_is_three_runs_of_all_methods():
    config = compose("config", overrides=["experiment=demo"], return_hydra_config=True)
    assert config.hydra.mode.name == "MULTIRUN"
    assert config.hydra.sweeper.params == {"case": "bfloat16-T0,bfloat16-T1,float32-T0"}
    data = composed("experiment=demo", "case=float32-T0")
    spec = run_spec(data)
    assert (spec.chain.levels[-1].dtype, spec.sampling.temperature, data["assert_identity"]) == ("float32", 0.0, True)
    assert next(iter(spec.methods)) == "ar"
    assert len(spec.methods) == 8
    assert (spec.prompts.limit, spec.max_new_tokens, data["label"]) == (6, 40, "float32-T0")


@pytest.mark.parametrize(
    ("config", "spec"),
    [
        (schema.LevelConfig, specs.LevelSpec),
        (schema.EdgeConfig, specs.EdgeSpec),
        (schema.ChainConfig, specs.ChainSpec),
        (schema.MethodConfig, specs.MethodSpec),
        (schema.DatasetConfig, specs.PromptSpec),
        (schema.DatasetConfig, DatasetSpec),
        (schema.SamplingConfig, Sampling),
        (schema.RunConfig, specs.RunSpec),
    ],
)
def test_the_schema_has_the_fields_and_defaults_of_the_spec(config, spec):
    ours, theirs = defaults(config), defaults(spec)
    if config is schema.RunConfig:
        ours["prompts"] = ours.pop("dataset")
        assert set(ours) - set(theirs) == set(schema.OPTIONS)
        ours = {name: ours[name] for name in theirs}
    assert set(ours) == set(theirs)
    for name, default in theirs.items():
        if default is not NO_DEFAULT and not isinstance(default, dict) and ours[name] != MISSING:
            # The split has no default here: each file of the group says its own.
            assert ours[name] == default or (config, name) == (schema.DatasetConfig, "split"), name


def defaults(kind) -> dict:
    found = {}
    for f in fields(kind):
        value = f.default if f.default_factory is NO_DEFAULT else f.default_factory()
        value = asdict(value) if hasattr(value, "__dataclass_fields__") else value
        found[f.name] = list(value) if isinstance(value, tuple) else value
    return found


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("chain.edges.0.gama=3", "chain.edges.0.gama"),
        ("methods.recursive.gama=3", "methods.recursive.gama"),
        ("methods.pair.levels=[0,1]", "methods.pair"),
        ("sampling.temprature=1", "sampling.temprature"),
        ("chain.edges.0.gamma=2.5", "chain.edges.*gamma"),
        ("chain.edges.0.gamma=many", "chain.edges.*gamma"),
        ("+methods.pair={levels: [0.5]}", "methods.pair"),
        ("+methods.pair={gama: 3}", "gama"),
        ("seed=1.5", "seed"),
        ("max_new_tokens=1e3", "max_new_tokens"),
        ("sampling.temperature=warm", "sampling.temperature"),
        ("chain.levels.0.top_p=[1]", "chain.levels.*top_p"),
        ("stop=abc", "stop"),
        ("timing=fast", "timing/fast"),
        ("chain=smollm3", "chain/smollm3"),
    ],
)
def test_a_wrong_key_or_type_fails_while_composing_and_is_named(override, words):
    with pytest.raises(HydraException) as caught:
        compose("config", overrides=[override])
    text = f"{caught.value} {caught.value.__cause__}"
    assert re.search(words, text), text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("chain: {edges: [{gama: 2}]}", r"experiment/mine(.|\n)*Key 'gama' not in 'EdgeConfig'"),
        ("chain: {edges: [{gamma: 2.5}, {gamma: 1}]}", r"Value '2.5'(.|\n)*gamma"),
        ("methods: {pair: {level: [0, 1]}}", r"methods.pair.level"),
        ("sampling: {temperature: warm}", "sampling.temperature"),
        ("dataset: {limits: 3}", "dataset.limits"),
        ("max_tokens: 3", "max_tokens"),
    ],
)
def test_a_wrong_key_in_an_experiment_file_is_named(tmp_path, text, words):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    with pytest.raises(ConfigCompositionException) as caught:
        compose("config", overrides=[f"hydra.searchpath=[file://{tmp_path}]", "experiment=mine"])
    assert re.search(words, f"{caught.value} {caught.value.__cause__}")


def test_values_that_only_the_spec_knows_are_refused_with_their_key():
    with pytest.raises(ValueError, match=r"methods.recursive.levels: no level 7 in a chain of 3"):
        spec_of("methods.recursive.levels=[7]")
    with pytest.raises(ValueError, match=r"chain: edges: 3 levels need 2, got 1"):
        spec_of("chain.edges=[{gamma: 2}]")
    with pytest.raises(ValueError, match=r"methods: 'ar' is missing"):
        spec_of("~methods.ar")
    with pytest.raises(ValueError, match=r"name: '\.\./x' is no plain folder name"):
        spec_of("name=../x")
    with pytest.raises(ValueError, match=r"tracker.mode: 'later' is not one of none, offline, online"):
        schema.check_options(composed("tracker.mode=later"))


def test_an_experiment_wins_over_groups_and_the_command_line_over_it(tmp_path):
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\ndefaults: [{override /sampling: nucleus}]\nsampling: {top_p: 0.8}\nseed: 5\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    spec = spec_of(f"hydra.searchpath=[file://{tmp_path}]", "experiment=mine", "seed=6")
    assert (spec.sampling, spec.seed) == (Sampling(0.7, top_p=0.8), 6)


def test_keys_with_brackets_are_taken_too():
    assert dotted("chain.levels[0].temperature=0.5") == "chain.levels.0.temperature=0.5"
    assert dotted("stop=[a[0],b]") == "stop=[a[0],b]"
    assert dotted("--multirun") == "--multirun"
    assert spec_of(dotted("chain.levels[0].temperature=0.5")).chain.levels[0].temperature == 0.5
    assert spec_of(dotted("chain.edges[1].gamma=5")).chain.edges[1].gamma == 5


@pytest.mark.parametrize("path", sorted(CHAINS.glob("*.yaml")), ids=lambda p: p.stem)
def test_hydra_and_the_library_read_the_same_chain(path):
    assert spec_of(f"chain={path.stem}").chain == read_chain(path.stem)


@pytest.mark.parametrize("path", sorted((CONF / "dataset").glob("*.yaml")), ids=lambda p: p.stem)
def test_hydra_and_the_library_read_the_same_data_set(path):
    prompts = spec_of(f"dataset={path.stem}").prompts
    assert DatasetSpec(**asdict(prompts)) == read_spec(path)


def test_a_small_number_arrives_from_everywhere(tmp_path):
    """B38: 1e-6 from the command line, from a file and from run.json."""
    (tmp_path / "sampling").mkdir()
    (tmp_path / "sampling" / "cool.yaml").write_text("temperature: 1e-6\n")
    assert isinstance(yaml.safe_load("1e-6"), str)  # which is why plain YAML is not trusted with it
    from_line = spec_of("sampling.temperature=1e-6")
    from_file = spec_of(f"hydra.searchpath=[file://{tmp_path}]", "sampling=cool")
    from_record = parse(RunSpec, json.loads(dumps(asdict(from_line))))
    assert from_line.sampling.temperature == 1e-6
    assert from_line == from_file == from_record


@pytest.mark.parametrize(
    ("written", "stop"),
    [
        ('stop=["a,b"]', ("a,b",)),
        ("stop=['x=y']", ("x=y",)),
        ("stop=['###']", ("###",)),
        ("stop=['### ', \"it's\"]", ("### ", "it's")),
        (r"stop=['\n']", (r"\n",)),
        ('stop=["\n"]', ("\n",)),
        ("stop=['{x: [1]}']", ("{x: [1]}",)),
    ],
)
def test_quoted_stop_strings_arrive_whole_in_one_job(written, stop):
    """B38: as docs/experiments.md writes them."""
    (jobs,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides([written, "seed=1,2"]), None)
    assert len(jobs) == 2
    for job in jobs:
        assert spec_of(*job).stop == stop


def test_unquoted_commas_are_a_sweep_and_other_signs_an_error():
    parser = OverridesParser.create()
    (jobs,) = BasicSweeper.split_arguments(parser.parse_overrides(["stop=[a],[b]"]), None)
    assert [spec_of(*job).stop for job in jobs] == [("a",), ("b",)]
    for written in ("stop=[x=y]", "stop=[###]"):
        with pytest.raises(HydraException):
            parser.parse_overrides([written])


def test_a_path_with_spaces_arrives():
    assert spec_of("dataset=gsm8k", "dataset.path=/my data/test.jsonl").prompts.path == "/my data/test.jsonl"


def test_the_documented_command_is_quoted_for_a_shell():
    hydra = OmegaConf.create({"overrides": {"task": ['stop=["a,b"]', "seed=1"]}})
    assert command(hydra) == """python -m experiments.run 'stop=["a,b"]' seed=1"""


def test_the_documentation_shows_what_these_tests_show():
    text = (Path(CONF).parent / "docs" / "experiments.md").read_text(encoding="utf-8")
    for written in ('stop=["a,b"]', "stop=['x=y']", "stop=['###']", "chain.levels[0].temperature=0.5"):
        assert written in text
