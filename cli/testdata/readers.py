"""Reads what `agentfly export` wrote with the program that a format is for, and prints it as JSON: readers.py FORMAT PATH."""

import json
import math
import os
import subprocess
import sys
import tempfile


def tensorboard(path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    a = EventAccumulator(path, size_guidance={"scalars": 0})
    a.Reload()
    assert "big" not in a.Tags()["scalars"] or math.isinf(a.Scalars("big")[0].value)  # beyond 32 bits
    return {tag: [[e.step, e.value] for e in a.Scalars(tag)] for tag in a.Tags()["scalars"] if tag != "big"}


def csv(path):
    import pandas

    return curves(pandas.read_csv(path))


def jsonl(path):
    import pandas

    with open(path, encoding="utf-8") as f:
        if not f.read():
            return {}
    return curves(pandas.read_json(path, lines=True, precise_float=True))


def curves(frame):
    out = {}
    for row in frame.to_dict("records"):
        out.setdefault(row["metric"], []).append([row["step"], row["value"]])
    return out


def inspect(path):
    from inspect_ai.log import list_eval_logs, read_eval_log, write_eval_log

    log = read_eval_log(path)
    write_eval_log(log, path + ".eval")  # and it can be written again, in the other of its formats
    again = read_eval_log(path + ".eval")
    assert len(again.samples or []) == len(log.samples or [])
    assert len(list_eval_logs(path.rsplit("/", 1)[0])) == 2
    return {
        "status": log.status,
        "model": log.eval.model,
        "mean": {name: m.value for name, m in log.results.scores[0].metrics.items()},
        "samples": [
            {
                "id": s.id,
                "reward": s.scores["reward"].value if "reward" in s.scores else None,
                "answer": s.scores["reward"].answer if "reward" in s.scores else None,
                "error": s.error.message if s.error else None,
                "metadata": s.metadata,
                "messages": [
                    [m.role, m.text, [[c.function, c.arguments] for c in getattr(m, "tool_calls", None) or []]] for m in s.messages
                ],
                "thoughts": [c.reasoning for m in s.messages if isinstance(m.content, list) for c in m.content if c.type == "reasoning"],
                "tokens": s.output.usage.output_tokens if s.output.usage else None,
            }
            for s in log.samples or []
        ],
    }


def atif(path):
    from harbor.models.trajectories import Trajectory

    with open(path, encoding="utf-8") as f:
        return [Trajectory.model_validate_json(line).to_json_dict() for line in f]


def trackio(path):
    folder, file = path.rsplit("/", 1)
    project = file.removesuffix(".db")
    env = dict(os.environ, TRACKIO_DIR=folder, HF_HUB_OFFLINE="1")
    command = os.path.join(os.path.dirname(sys.executable), "trackio")

    def ask(*args):
        return json.loads(subprocess.run([command, *args, "--json"], env=env, check=True, capture_output=True, text=True).stdout)

    runs = ask("list", "runs", "--project", project)["runs"]
    sql = "SELECT step, metrics FROM metrics ORDER BY step"
    rows = ask("query", "project", "--project", project, "--sql", sql)["rows"]
    os.environ.update(TRACKIO_DIR=folder, HF_HUB_OFFLINE="1")
    from trackio.sqlite_storage import SQLiteStorage

    return {
        "runs": [r if isinstance(r, str) else r["name"] for r in runs],
        "metrics": [[r["step"], json.loads(r["metrics"])] for r in rows],
        "logs": SQLiteStorage.get_logs(project, project),
        "traces": SQLiteStorage.get_traces(project, project),
    }


def wandb(path):
    command = os.path.join(os.path.dirname(sys.executable), "wandb")
    said = subprocess.run([command, "leet", "inspect", "--json", path], check=True, capture_output=True, text=True).stdout
    folder = path.rsplit("/", 1)[0]
    sync = subprocess.run([command, "sync", "--dry-run", folder], check=True, capture_output=True, text=True)
    records = [json.loads(line) for line in said.splitlines()]
    return {"records": records, "sync": sync.stdout + sync.stderr}


def parquet(path):
    import pandas
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(path).to_pylist()
    frame = pandas.read_parquet(path)
    assert list(frame["id"]) == [r["id"] for r in rows]
    assert [None if math.isnan(v) else v for v in frame["reward"]] == [r["reward"] for r in rows]
    return rows


def datasets(path):
    import datasets

    with tempfile.TemporaryDirectory() as cache:
        return datasets.load_dataset("parquet", data_files=path, split="train", cache_dir=cache).to_list()


def duckdb(path):
    import duckdb

    return duckdb.sql("SELECT * FROM read_parquet($path)", params={"path": path}).to_arrow_table().to_pylist()


def mlflow(url):
    from mlflow.tracking import MlflowClient

    c = MlflowClient(url)
    out = []
    for run in c.search_runs([c.get_experiment_by_name("agentfly").experiment_id]):
        metrics = {k: [[m.step, m.value] for m in c.get_metric_history(run.info.run_id, k)] for k in run.data.metrics}
        out.append({"name": run.info.run_name, "status": run.info.status, "metrics": metrics, "model": run.data.tags["agentfly.model"]})
    return out


def otlp(url):
    import mlflow

    mlflow.set_tracking_uri(url)
    traces = mlflow.search_traces(locations=["0"], return_type="list")
    return [{"spans": [{"name": s.name, "parent": s.parent_id is not None} for s in t.data.spans]} for t in traces]


def finite(v):
    if isinstance(v, float) and not math.isfinite(v):
        return repr(v)
    if isinstance(v, dict):
        return {k: finite(x) for k, x in v.items()}
    return [finite(x) for x in v] if isinstance(v, list) else v


if __name__ == "__main__":
    json.dump(finite(globals()[sys.argv[1]](*sys.argv[2:])), sys.stdout)
