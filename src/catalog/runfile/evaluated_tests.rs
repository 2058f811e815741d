use super::super::parse::{Item, parse};
use super::*;
use std::path::Path;

/// How the values of `a`, `b` and `c`, which are `$1`, `$2` and `$3`, are evaluated.
fn marks(body: &str) -> String {
    let text = format!("f(a, b, c) {{\n{body}\n}}\n");
    let parsed = parse(&text, Path::new("/"));
    let Some(Item::Function(function)) = parsed.items.into_iter().next() else {
        panic!("{text}: {:?}", parsed.problems);
    };
    let letter = |one: &Parameter| match one.evaluated {
        Some(Evaluated::Number) => '#',
        Some(Evaluated::Name) => 'n',
        None => '.',
    };
    function.parameters.iter().map(letter).collect()
}

#[test]
fn values_in_arithmetic_are_found() {
    for body in [
        "echo $(( $1 + 1 ))",
        "echo \"$((1+${1}))\"",
        "(( a > 3 )) && x",
        "for (( i = 0; i < a; i++ )); do x; done",
        "echo $[ $1 + 1 ]",
        "[[ $1 -eq 3 ]]",
        "if [[ x == y && \"$a\" -gt 3 ]]; then x; fi",
        "[[ 'a' -le 3 ]]",
        "let x=$1",
        "let 'x = a | 2'",
        "declare -i x=$1",
        "local -i x; x=\"$1\"",
        "echo ${list[$1]}",
        "list[a]=3",
        "list=([$1]=3)",
        "echo ${HOME:$1}",
        "echo \"${HOME: -1:a}\"",
        "echo ${@:$1}",
        "n=$1; m=\"${n:-3}\"\n(( m++ ))",
        "for x in $1 5; do (( x )); done",
        "read -r x <<< \"$1\"\n(( x ))",
        "cat <<EOF\n$(( $1 ))\nEOF",
        "(( 1 << n )); n=$1",
    ] {
        assert_eq!(marks(body), "#..", "{body}");
    }
    assert_eq!(marks("for x in \"$@\"; do (( x )); done"), "###");
    assert_eq!(marks("shift; echo $(( $1 ))"), "###");
    assert_eq!(marks("(( $2 ${12} ))"), ".#.");
}

#[test]
fn names_of_variables_are_found() {
    for body in [
        "[[ -v $1 ]]",
        "if test -v \"$a\"; then x; fi",
        "printf -v \"$1\" x",
        "unset \"$1\"",
        "echo \"${!a}\"",
        "local -n ref=$1",
        "echo ${1@P}",
    ] {
        assert_eq!(marks(body), "n..", "{body}");
    }
}

#[test]
fn values_that_stay_texts_are_left_alone() {
    for body in [
        "./deploy.sh $1 ${2:-x} ${3:+--y \"$3\"} ${a%.} ${a/x/y}",
        "[ $# -gt 1 ] && ./deploy.sh $1",
        "[[ $# -gt 1 && $a == prod ]] || exit 1",
        "awk '{n[$1]++} END {print ((a))}' \"$1\"",
        "# (( $1 ))\necho it\\'s $1",
        "cat <<'EOF'\n$(( $1 ))\nEOF",
        "n=$(grep -c \"$1\" file); (( n > 3 ))",
        "(( $(wc -l < \"$1\") > 3 ))",
        "declare -A urls=([x]=1 [y]=2); echo ${urls[$1]}",
        "grep -v \"$1\" file",
        "( cd \"$a\" && ( ls ) )",
        "echo ${#1} ${1:0:3}",
    ] {
        assert_eq!(marks(body), "...", "{body}");
    }
}

#[test]
fn awkward_texts_take_no_time() {
    for part in [
        "${a:", "((", "[[ ", "a[", "$(", "'", "<<E\n", "let ", "\"", "a=$a ",
    ] {
        let mut function = match parse("f(a) x\n", Path::new("/")).items.remove(0) {
            Item::Function(function) => function,
            other => panic!("{other:?}"),
        };
        function.body = part.repeat(500) + "é";
        mark(&mut function);
    }
}
