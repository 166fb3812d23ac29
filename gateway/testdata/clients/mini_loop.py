"""mini-swe-agent, which works in a shell: mini_loop.py."""
import os
import tempfile

os.environ.update(MSWEA_SILENT_STARTUP="1", MSWEA_COST_TRACKING="ignore_errors", MSWEA_GLOBAL_CONFIG_DIR=tempfile.mkdtemp(), LITELLM_LOCAL_MODEL_COST_MAP="True", MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT="3")
from pathlib import Path

import minisweagent
import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models import get_model

config = yaml.safe_load((Path(minisweagent.__file__).parent / "config" / "mini.yaml").read_text())
model = config["model"]
model["model_name"] = "openai/policy"
model.setdefault("model_kwargs", {}).update(api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
prompts = {k: v for k, v in config["agent"].items() if k in ("system_template", "instance_template")}
agent = DefaultAgent(get_model(config=model), LocalEnvironment(cwd=tempfile.mkdtemp()), step_limit=6, cost_limit=0, **prompts)
print("FINAL", agent.run("What is 17*23?"), "calls", agent.n_calls)
