"""Scopes, as the proxy reads them."""

import pytest

from ati import ScopeError, build_scope_string, check_scope, matches_wildcard, parse_scopes


def test_scope_string_has_prefixes_and_each_scope_once():
    assert build_scope_string() == ""
    assert build_scope_string(tools=["a", "tool:a", "b:*"], skills=["skill:c"], extra=["help", "help"]) == "tool:a tool:b:* skill:c help"


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n*", "a *", "\ta"])
def test_name_that_would_smuggle_a_scope_is_refused(name):
    for kind in ("tools", "skills", "extra"):
        with pytest.raises(ScopeError):
            build_scope_string(**{kind: [name]})


def test_text_instead_of_a_list_is_refused():
    with pytest.raises(ScopeError):
        build_scope_string(tools="github:*")


def test_patterns_end_with_a_star():
    assert matches_wildcard("tool:github:search", "tool:github:*")
    assert matches_wildcard("anything", "*")
    assert not matches_wildcard("tool:linear:list", "tool:github:*")
    assert not matches_wildcard("tool:github:x", "tool:*:x")
    assert check_scope("tool:github:search_repos", ["tool:github:*"])
    assert not check_scope("tool:secret_api", ["tool:web_search"])
    assert not check_scope("tool:a", [])
    assert parse_scopes(" a  b ") == ["a", "b"]
