"""Makes `base/rules.yaml`, the alerts and recording rules as the Prometheus operator takes them.

`python deploy/k8s/rules.py` writes it; with `--check`, it says whether it is what would be written.
"""

import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parent
RULES = HERE.parent / "prometheus" / "rules"
OUTPUT = HERE / "base" / "rules.yaml"


def build() -> str:
    """The resource as YAML."""
    files = [yaml.safe_load((RULES / f"{name}.yml").read_text()) for name in ("recording", "alerts")]
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "paperclip-memory"},
        "spec": {"groups": [group for file in files for group in file["groups"]]},
    }
    return "# Made by deploy/k8s/rules.py from deploy/prometheus/rules.\n" + yaml.safe_dump(resource, sort_keys=False)


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(OUTPUT.read_text() != build())
    OUTPUT.write_text(build())
