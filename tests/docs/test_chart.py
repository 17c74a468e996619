"""The Helm chart, the images and the alerts pass their programs' checks, if installed, and agree
with headway."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from headway.server.config.config import ServerConfig
from headway.server.config.durations import SECOND

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "headway"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DOCKERFILES = [DEPLOY / "docker" / name for name in ("Dockerfile", "Dockerfile.vllm")]


def checked(*command, cwd=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"there is no {program} here")


@needs("promtool")
def test_the_alerts_fire_in_their_scenarios():
    folder = DEPLOY / "prometheus"
    checked("promtool", "check", "rules", "alerts.yaml", cwd=folder)
    checked("promtool", "test", "rules", "alerts.test.yaml", cwd=folder)


@needs("hadolint")
@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda each: each.name)
def test_the_dockerfiles_pass_hadolint(file):
    checked("hadolint", str(file))


@needs("helm")
def test_helm_lints_and_renders_the_chart():
    checked("helm", "lint", "--strict", str(CHART))
    checked("helm", "template", "headway", str(CHART))


def test_the_schema_takes_the_charts_values_and_refuses_wrong_ones():
    jsonschema.validate(VALUES, SCHEMA)
    for wrong in ({"replica": 2}, {"config": {"keys": []}}, {"image": {"tags": "a"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**VALUES, **wrong}, SCHEMA)


def test_the_server_accepts_the_charts_configuration(tmp_path):
    file = tmp_path / "headway.yaml"
    file.write_text(yaml.safe_dump(VALUES["config"]))
    config = ServerConfig.load(file)
    assert list(config.lanes) == ["interactive", "standard", "offline"]
    drain = config.server.drain_timeout // SECOND
    assert VALUES["terminationGracePeriodSeconds"] > VALUES["preStopSeconds"] + drain
    assert VALUES["keys"] == [], "keys are the Secret's, not the ConfigMap's"


def test_every_value_is_used_by_a_template_and_every_template_uses_values_that_exist():
    text = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values\.(\w+)(?:\.(\w+))?", text))
    assert {name for name, _ in used} - {"nameOverride"} == set(VALUES)
    for name, part in used:
        if part and name not in ("config",):
            assert part in VALUES[name], f"{name}.{part}"


def test_the_image_can_build_the_kernels_and_the_chart_leaves_their_folder_private():
    assert re.search(r"apt-get install .*\bg\+\+", DOCKERFILES[0].read_text())
    deployment = (CHART / "templates" / "deployment.yaml").read_text()
    assert "fsGroup:" in deployment and "fsGroupChangePolicy: OnRootMismatch" in deployment


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics"])
def test_the_charts_probe_and_metrics_paths_are_routes_of_the_server(path):
    text = "\n".join(each.read_text() for each in (CHART / "templates").iterdir())
    assert path in text
    routes = Path(__file__).parents[2] / "src/headway/server/http/routes/state.py"
    assert f'"{path}"' in routes.read_text()


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda each: each.name)
def test_the_images_copy_what_they_install_and_run_as_a_numeric_user(file):
    text = file.read_text()
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "src"} == kept
    user, home = re.search(r"^USER (\d+)$", text, re.M)[1], "install --directory --owner headway"
    assert f"--uid {user} headway" in text and f"{home} --mode 0700 /home/headway/.cache" in text
    assert 'ENTRYPOINT ["headway", "serve"]' in text
    extras = set(re.search(r"/src\[([\w,]+)\]", text)[1].split(","))
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.M) for extra in extras)


def test_the_image_installs_the_torch_that_its_constraints_name():
    first, second = re.findall(r"pip install [^&]*", DOCKERFILES[0].read_text())
    assert "grep '^torch==' /src/constraints.txt" in first and "--constraint" in second
    pins = (DEPLOY.parent / "constraints.txt").read_text().splitlines()
    assert len([pin for pin in pins if pin.startswith("torch==")]) == 1


def test_the_image_has_what_an_endpoint_for_traces_asks_for():
    """Without it, a server whose environment names one does not start."""
    assert "otel" in re.search(r"/src\[([\w,]+)\]", DOCKERFILES[0].read_text())[1].split(",")


def test_the_vllm_image_installs_no_torch_of_its_own():
    text = (DEPLOY / "docker" / "Dockerfile.vllm").read_text()
    assert "[torch" not in text and "pip install --no-cache-dir torch" not in text
