"""Every rule of every set: it keeps values, makes its node smaller, and shares no node."""

import zlib

import numpy as np
import pytest
from ops.random_nodes import (
    ALL_DTYPES,
    Environment,
    NoSuchNode,
    node_for,
    pick,
    random_node,
    same_values,
)

from tinytensor.ops.op import Op
from tinytensor.ops.rewrite import LATER, rewrite
from tinytensor.ops.simplify_index import ALL_RULES, INDEX_RULES
from tinytensor.ops.simplify_values import VALUE_RULES

HITS = 110
DRAWS = 60_000
SETS = (VALUE_RULES, INDEX_RULES)
RULES = [(rules, rule) for rules in SETS for rule in rules.rules]


def name_of(part):
    return part.name


def claims(rule, node):
    """What the rule makes of the node, or None when it declines."""
    result = rule.apply(node)
    return None if result is node else result


def legal_nodes(rule, count):
    """Random nodes that the rule claims, each with its result."""
    rng = np.random.default_rng(zlib.crc32(rule.name.encode()))
    hits = 0
    for _ in range(DRAWS):
        if hits == count:
            return
        try:
            node = node_for(rule.pattern, rng)
        except NoSuchNode:
            continue
        result = claims(rule, node)
        if result is not None:
            hits += 1
            yield node, result, rng


@pytest.mark.parametrize(("rules", "rule"), RULES, ids=name_of)
def test_a_legal_rule_keeps_the_value_and_makes_it_smaller(rules, rule):
    tried = 0
    for node, result, rng in legal_nodes(rule, HITS):
        environment = Environment(rng)
        tried += 1

        before, after = environment.values_of(node), environment.values_of(result)

        assert result.dtype is node.dtype
        assert same_values(before, after), shown(node, result)
        assert rules.measure(result) < rules.measure(node), shown(node, result)
    assert tried > 100, f"{rule.name}: its legality was almost never met, so nothing was tested"


def shown(*nodes):
    return "\n".join(text(node) for node in nodes)


def text(node):
    if node.op is Op.CONST:
        return f"{node.dtype.name}:{node.value}"
    if node.op is Op.RANGE:
        return f"r{node.attrs.number}<{node.extent}"
    parts = ", ".join(text(each) for each in node.operands)
    return f"{node.op.name}:{node.dtype.name}({parts})"


@pytest.mark.parametrize(("rules", "rule"), RULES, ids=name_of)
def test_rules_share_a_node_only_when_one_is_declared_before_the_other(rules, rule):
    later = rules.rules[rules.rules.index(rule) + 1 :]
    for node, _, _ in legal_nodes(rule, HITS):
        undeclared = [
            each.name for each in later if claims(each, node) and not precedes(rule, each)
        ]

        assert undeclared == [], f"{rule.name} shares {text(node)}"


def precedes(rule, later):
    return rule.before == LATER or later.name in rule.before


@pytest.mark.parametrize("rules", SETS, ids=lambda rules: rules.name)
def test_before_names_a_later_rule_of_the_set(rules):
    names = [rule.name for rule in rules.rules]

    wrong = [
        (rule.name, later)
        for place, rule in enumerate(rules.rules)
        for later in rule.before
        if rule.before != LATER and later not in names[place + 1 :]
    ]

    assert wrong == []


@pytest.mark.parametrize("rules", (*SETS, ALL_RULES), ids=lambda rules: rules.name)
def test_a_set_is_idempotent_and_keeps_values(rules, seed):
    rng = np.random.default_rng(seed)
    for _ in range(400):
        node = random_node(rng, pick(rng, ALL_DTYPES), 4)
        environment = Environment(rng)

        (once,) = rewrite((node,), rules)
        (twice,) = rewrite((once,), rules)

        assert twice is once, shown(node, once, twice)
        assert same_values(environment.values_of(node), environment.values_of(once))
