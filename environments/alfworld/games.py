"""Games of ALFWorld's six types, made of the domain and the grammar that the package ships: a kitchen of twelve places with objects in it. A number
makes a game; the same number makes the same one. This file stands before world.py in one module."""

import random

TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
NEEDS = {"pick_clean_then_place_in_recep": "Cleanable", "pick_heat_then_place_in_recep": "Heatable", "pick_cool_then_place_in_recep": "Coolable"}
PLACES = "Fridge Microwave SinkBasin CounterTop CounterTop Cabinet Cabinet Drawer Shelf DiningTable SideTable GarbageCan".split()
DESK = PLACES.index("SideTable")  # where the lamp stands
OBJECTS = "Apple Tomato Potato Egg Bread Mug Cup Plate Knife Fork Spoon Book CellPhone Statue".split()


def identifier(k, place):
    """The id of a place, of which the package makes its name; of a sink it adds "basin" itself."""
    return "Sink_bar_%d_bar_SinkBasin" % k if place == "SinkBasin" else "%s_bar_%d" % (place, k)


def make(number, types, domain, grammar, constants, goals):
    """The game with this number, as the package's game files hold one."""
    rng, kind = random.Random("game %d" % number), types[number % len(types)]
    able, holds = constants.VAL_ACTION_OBJECTS, constants.VAL_RECEPTACLE_OBJECTS

    def fits(thing, place):
        return thing in holds.get(place, ())

    need = NEEDS.get(kind)
    ends = sorted(set(PLACES) - {"Microwave", "SinkBasin", "Fridge"})
    target, end = rng.choice(sorted((o, r) for o in OBJECTS for r in ends if fits(o, r) and (need is None or o in able[need])))
    things = [target] * (2 if kind == "pick_two_obj_and_place" else 1) + rng.sample([o for o in OBJECTS if o != target], 5)
    if kind == "look_at_obj_in_light":
        things.append("DeskLamp")
    places = [identifier(k, r) for k, r in enumerate(PLACES)]
    items = ["%s_bar_%d" % (o, 50 + k) for k, o in enumerate(things)]

    init = ["(atLocation agent1 loc0)", "(= (total-cost) 0)"]
    for k, place in enumerate(PLACES):
        init += ["(receptacleAtLocation %s loc%d)" % (places[k], k + 1), "(receptacleType %s %sType)" % (places[k], place)]
        if place in constants.OPENABLE_CLASS_SET:
            init.append("(openable %s)" % places[k])
    for item, thing in zip(items, things):
        if thing == "DeskLamp":
            at = DESK
        else:  # not where it has to go: no game begins solved
            at = rng.choice([k for k, r in enumerate(PLACES) if fits(thing, r) and r != "Microwave" and not (thing == target and r == end)])
        init += ["(objectType %s %sType)" % (item, thing), "(inReceptacle %s %s)" % (item, places[at]), "(objectAtLocation %s loc%d)" % (item, at + 1)]
        init.append("(%s %s)" % ("toggleable" if thing == "DeskLamp" else "pickupable", item))
        init += ["(%s %s)" % (p.lower(), item) for p in ("Heatable", "Coolable", "Cleanable") if thing in able[p]]
    classes, kinds = sorted(set(PLACES)), sorted(set(things))
    init += ["(canContain %sType %sType)" % (r, o) for r in classes for o in kinds if fits(o, r)]

    goal = goals[kind]["pddl"].format(obj=target, recep=end, toggle="DeskLamp").replace("#", "-")
    named = kinds + [k for k in ("Knife", "ButterKnife") if k not in kinds]  # the domain names them: they must exist
    problem = "(define (problem p)\n(:domain alfred)\n(:objects agent1 - agent\n%s - location\n%s - receptacle\n%s - object\n%s - rtype\n%s - otype)\n(:init\n%s)\n%s" % (
        " ".join("loc%d" % k for k in range(len(PLACES) + 1)),
        " ".join(places),
        " ".join(items),
        " ".join(r + "Type" for r in classes),
        " ".join(o + "Type" for o in named),
        "\n".join(init),
        goal,
    )
    words = goals[kind]["templates"][0].format(obj=target.lower(), recep=end.lower(), toggle="desklamp", mrecep="")
    return {"pddl_domain": domain, "grammar": grammar.replace("UNKNOWN GOAL", words), "pddl_problem": problem, "goal": words}
