"""Number of rounds of loops, as far as their graphs tell it."""

from compile_dag import ComputeGraph, Node


def rounds_of(node: Node) -> float:
    """Returns how often the body of a ``while`` runs.

    A loop that counts up by a constant to a constant: exactly. One that counts up to a number that is computed, and in
    each round writes some rows for one choice of each group (experts that devices divide): as many as choices are made,
    if all are equally frequent. A loop with a step that sums over the rows with one number (the loop over experts):
    about as many as numbers differ, if all are equally frequent, and at least as many as full rows need. Any other
    loop: once.
    """
    cond, body, _ = node.attributes
    limit = _limit(cond)
    if limit is None:
        return _rounds_of_groups(body)
    place, most = limit
    step = list(body.outputs.values())[place]
    made = {value.number: inner for inner in body.nodes for value in inner.results}
    adding = made.get(step.number)
    if adding is None or adding.op.name != "add":
        return 1
    counted = next((made[value.number] for value in adding.inputs if value.number in made), None)
    if counted is None:
        return 1
    if counted.op.name == "constant":
        return -(-most // int(counted.attributes[0].array))
    rows = counted.inputs[0].spec.size if counted.inputs else 1
    return max(most / rows, _distinct(_choices(body), most))


def _rounds_of_groups(body: ComputeGraph) -> float:
    written = [
        inner for inner in body.nodes if inner.op.name == "dynamic_update_slice" and inner.inputs[0].spec.ndim == 3
    ]
    sizes = [
        inner.inputs[0].spec.shape[1]
        for inner in body.nodes
        if inner.op.name == "dynamic_slice" and inner.inputs[0].spec.ndim > 2 and inner.attributes[0][1] == 1
    ]
    if not written or not sizes:
        return 1
    (groups, places, _), rows = written[0].inputs[0].spec.shape, written[0].inputs[1].spec.shape[1]
    # There is room for all full rounds and for one more of each choice, or of each draw if these are fewer.
    choices, most = max(sizes), places // rows
    draws = most * rows // (rows + 1)
    if draws > choices:
        draws = (most - choices) * rows
    return max(draws / (groups * rows), _distinct(choices, draws))


def _limit(cond: ComputeGraph) -> tuple[int, int] | None:
    """Returns which carried value is compared with which constant; None if the condition is another one."""
    (result,) = cond.outputs.values()
    made = {value.number: inner for inner in cond.nodes for value in inner.results}
    less = made.get(result.number)
    carried = [value.number for value in cond.inputs.values()]
    if less is None or less.op.name != "less" or less.inputs[0].number not in carried:
        return None
    bound = made.get(less.inputs[1].number)
    if bound is None or bound.op.name != "constant":
        return None
    return carried.index(less.inputs[0].number), int(bound.attributes[0].array)


def _choices(body: ComputeGraph) -> int:
    """Returns from how many slices of a stacked weight each round takes one; 1 if it takes none."""
    sizes = [
        inner.inputs[0].spec.shape[0]
        for inner in body.nodes
        if inner.op.name == "dynamic_slice" and inner.attributes[0][0] == 1 and inner.inputs[0].spec.ndim > 1
    ]
    sizes += [inner.inputs[2].spec.shape[0] for inner in body.nodes if inner.op.name == "packed_expert_linear"]
    return max(sizes, default=1)


def _distinct(choices: int, draws: int) -> float:
    """Returns how many of some choices occur among so many draws, on average."""
    return choices * (1 - (1 - 1 / choices) ** draws)
