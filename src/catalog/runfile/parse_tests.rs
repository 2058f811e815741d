use super::*;

fn functions(text: &str) -> Vec<Function> {
    let parsed = parse(text, Path::new("/p"));
    assert_eq!(parsed.problems, [], "{text}");
    let functions = parsed.items.into_iter().filter_map(|item| match item {
        Item::Function(function) => Some(function),
        _ => None,
    });
    functions.collect()
}

fn problems(text: &str) -> Vec<(u32, String)> {
    parse(text, Path::new("/p")).problems
}

#[test]
fn seeds_example_is_read_as_it_is_printed() {
    let text = "\
# @desc Search the codebase for specific patterns
# @arg 1:pattern string The regex pattern to search for
# @shell python
search() {
    import sys, os, re
    pattern = sys.argv[1]
    # ... python logic to walk dir and json.dump results ...
}

# @desc Deploy the application
# @arg 1:env string The target environment (staging|prod)
deploy() {
    ./scripts/deploy.sh $1
}

# @desc Scale a specific service
# @arg 1:service string The name of the docker service (e.g., 'web')
# @arg 2:replicas integer The number of instances to spin up
scale() {
    docker compose scale $1=$2
}
";
    let all = functions(text);
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["search", "deploy", "scale"]);
    assert_eq!(all[0].interpreter, Interpreter::Python);
    assert!(
        all[0]
            .body
            .starts_with("import sys, os, re\npattern = sys.argv[1]\n#")
    );
    assert_eq!((all[0].line, all[2].line), (4, 19));
    let parameters: Vec<_> = all[2]
        .parameters
        .iter()
        .map(|one| (one.name.as_str(), one.position, one.required))
        .collect();
    assert_eq!(parameters, [("service", 1, true), ("replicas", 2, true)]);
}

#[test]
fn every_form_of_a_function_is_read() {
    let text = "\
#@desc a
a() echo one \\
  two
function b { echo b; }
function c(x, y: int = 3) {
echo $x
}
d:e-f (){ echo; }
g()
{
  echo g
}
h(
  one: str,
  ...rest
) { echo $one }
# @os windows
w() del
i() {
    #!/usr/bin/env python3
    print(1)
}
";
    let all = functions(text);
    let bodies: Vec<(&str, &str)> = all
        .iter()
        .map(|one| (one.name.as_str(), one.body.as_str()))
        .collect();
    assert_eq!(
        bodies,
        [
            ("a", "echo one \\\n  two"),
            ("b", "echo b;"),
            ("c", "echo $x"),
            ("d:e-f", "echo;"),
            ("g", "  echo g"),
            ("h", "echo $one"),
            ("i", "print(1)"),
        ]
    );
    assert_eq!(all[0].description.as_deref(), Some("a"));
    assert_eq!(all[5].parameters.len(), 2);
    assert_eq!(all[6].interpreter, Interpreter::Python);
}

#[test]
fn blank_line_ends_the_block_of_comments() {
    let all = functions("# @desc lost\n\n# @safe\na() x\n");
    assert_eq!(
        (all[0].description.as_deref(), all[0].is_safe),
        (None, true)
    );
}

#[test]
fn brace_that_a_text_hides_does_not_swallow_the_next_function() {
    let all = functions("a() {\n  echo it's\n}\n\nb() {\n  echo b\n}\n");
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].body, "  echo it's");
    let all = functions("# @shell node\na() {\nconst x = {\n  b: 1\n}\nconsole.log(x)\n}\nb() y\n");
    assert_eq!(all.len(), 2);
    assert!(all[0].body.ends_with("console.log(x)"));
}

#[test]
fn function_without_an_end_loses_only_itself() {
    let parsed = parse(
        "a() { echo\n  x() { y\n# @desc b\nb() { echo b; }\nc() {\n",
        Path::new("/p"),
    );
    let lines: Vec<u32> = parsed.problems.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 5]);
    let [Item::Function(only)] = &parsed.items[..] else {
        panic!("{:?}", parsed.items);
    };
    assert_eq!(
        (only.name.as_str(), only.description.as_deref()),
        ("b", Some("b"))
    );
    // Many lines that are no functions have few warnings.
    let parsed = parse(&"root:x:0\n".repeat(100), Path::new("/p"));
    assert_eq!(parsed.warnings.len(), 4);
}

#[test]
fn python_text_of_several_lines_keeps_its_lines() {
    let all = functions("# @shell python\na() {\n    x = '''\nleft\n'''\n    print(x)\n}\n");
    assert_eq!(all[0].body, "x = '''\nleft\n'''\nprint(x)");
}

#[test]
fn mistakes_have_their_line_and_the_rest_is_read() {
    for (text, line, message) in [
        ("x() {\necho\n", 1, "no closing brace"),
        ("\nx()\n\ny() z", 2, "has no body"),
        ("# @arg x:y z\nx() y", 1, "@arg is written"),
        ("# @shell cobol\nx() y", 1, "unknown interpreter 'cobol'"),
        (
            "x() {\n#!/usr/bin/cobol\n}",
            2,
            "unknown interpreter 'cobol'",
        ),
        ("x(1a) y", 1, "'1a' is no name"),
        ("a() b\n}\n", 2, "closes nothing"),
        ("A=\"b\nc() d\n", 1, "no end"),
        (
            "# @arg 1:a t\n# @arg 1:b t\nx() y",
            2,
            "position 1 is that of 'a'",
        ),
    ] {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert_eq!(found[0].0, line, "{text}: {found:?}");
        assert!(found[0].1.contains(message), "{text}: {found:?}");
    }
    let parsed = parse(
        "echo hi\nexport A='x\ny'\nsource ./b.run\n# @instructions Ask.\n",
        Path::new("/"),
    );
    assert_eq!(parsed.warnings.len(), 1);
    assert_eq!(
        parsed.items,
        [
            Item::Assignment("export A='x\ny'".to_owned()),
            Item::Source {
                path: "./b.run".to_owned(),
                line: 4
            },
            Item::Instructions("Ask.".to_owned()),
        ]
    );
}

/// Every beginning of awkward texts, and every text with one character left out: none panics, none
/// takes long, and a line number is one of the text.
#[test]
fn awkward_texts_end_with_problems_and_nothing_else() {
    let texts = [
        "# @desc é\u{0}\na(\"é\", ...b: int = 'x') {\n cat <<'E'\n}'\"`\\\nE\n}\r\n\tfunction é {\n",
        "#!x\n}\n{\n((\na()\n{\nb(){c(){d(){\n<<\n<<-\n<<''\n$'\\'\n`",
        "# @shell node\na() {\n/* ` */ ` ${\n} */ // }\n'\n\"\n}\n# @arg 1:\n# @arg :x\n# @\nA=\\",
    ];
    for text in texts {
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        for &at in &places {
            let width = text[at..].chars().next().map_or(0, char::len_utf8);
            let without = format!("{}{}", &text[..at], &text[at + width..]);
            for text in [&text[..at], &without] {
                let parsed = parse(text, Path::new("/p"));
                let lines = text.lines().count().max(1) as u32;
                let places = parsed.problems.iter().chain(&parsed.warnings);
                for (line, message) in places {
                    assert!((1..=lines).contains(line), "{text:?}: {line} {message}");
                }
            }
        }
    }
}
