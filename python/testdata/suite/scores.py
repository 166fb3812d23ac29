from agentfly import reward


@reward()
def exact(final_response, answer):
    return 1.0 if final_response.strip() == answer else 0.0


@reward(name="detailed")
def details(prediction, trajectory, task, environment=None, weight=2):
    calls = len(trajectory["results"])
    return {"reward": weight * calls, "calls": calls, "same": prediction == task["fields"]["answer"], "note": "text"}


@reward
def boolean(final_response):
    return final_response != ""


@reward()
def rest(final_response, **fields):
    return len(fields)


@reward()
def not_finite(final_response):
    return float("inf")


@reward()
def nothing(final_response):
    pass
