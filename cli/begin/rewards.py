"""The reward of job.yaml. Try it without a job:

agentfly rewards call rewards.py right '{"final_response": "132", "answer": "132"}'
agentfly tools test rewards.py
"""

from agentfly import reward


@reward()
def right(final_response: str, answer: str, trajectory: dict) -> dict:
    """{{if .Tool}}0.8 for the right answer, 0.2 for a call that returned it{{else}}1 for the right answer, 0.2 for an answer that is a number{{end}}."""
    correct = final_response.strip() == answer
{{- if .Tool}}
    called = any(r["observation"] == answer for r in trajectory["results"] if not r["failed"])
    return {"reward": 0.8 * correct + 0.2 * called, "correct": correct, "called": called}
{{- else}}
    number = final_response.strip().lstrip("-").isdigit()
    return {"reward": 0.8 * correct + 0.2 * number, "correct": correct, "number": number}
{{- end}}


def test_right():
{{- if .Tool}}
    results = [{"observation": "132", "failed": False}]
    assert right("132", "132", {"results": results})["reward"] == 1.0
    assert right("5", "132", {"results": results})["reward"] == 0.2
{{- else}}
    assert right(" 132 ", "132", {"results": []})["reward"] == 1.0
    assert right("5", "132", {"results": []})["reward"] == 0.2
{{- end}}
    assert right("", "132", {"results": []})["reward"] == 0.0
