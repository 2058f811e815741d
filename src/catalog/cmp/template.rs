//! The command of an intent. It is split into words first, and values are put into the words: no
//! value can become a second word, an option, or a command.

use serde_json::{Map, Value};

use super::intent::{Kind, Parameter};

/// Bytes of a command.
const LONGEST: usize = 64 << 10;
/// What a shell would act on, and what is only a word here.
const OPERATORS: [&str; 11] = [
    "|",
    "||",
    "&&",
    ";",
    "&",
    ">",
    ">>",
    "<",
    "2>",
    "2>&1",
    "2>/dev/null",
];

/// The words of a command, with places for values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    words: Vec<Word>,
    /// As it is written.
    pub text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Word(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// `{name}`.
    Value(String),
}

/// Why a command can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    #[error("it is empty")]
    Empty,
    #[error("it is longer than {LONGEST} bytes")]
    TooLong,
    #[error("a quotation mark {0} has no end")]
    OpenQuote(char),
    #[error("it ends with a backslash")]
    OpenEscape,
    #[error("it has a NUL byte")]
    Nul,
    #[error("its first word is the program, which can't be a parameter")]
    NoProgram,
}

/// Why arguments make no command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    pub name: String,
    pub what: String,
    pub missing: bool,
}

impl Unfit {
    fn new(name: &str, what: impl Into<String>, missing: bool) -> Self {
        Unfit {
            name: name.to_owned(),
            what: what.into(),
            missing,
        }
    }
}

/// Whether a name can stand in `{}`: other braces are a part of the command, as in `awk
/// '{print $1}'`.
pub fn is_placeholder_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

impl Template {
    /// `wraps` is the program of an adapter, which stands before a command that has none.
    pub fn parse(text: &str, wraps: Option<&str>) -> Result<Self, TemplateFault> {
        if text.len() > LONGEST {
            return Err(TemplateFault::TooLong);
        }
        if text.contains('\0') {
            return Err(TemplateFault::Nul);
        }
        let mut words = split(text)?;
        if let Some(wraps) = wraps {
            let name = wraps.rsplit('/').next().unwrap_or(wraps);
            let first = words.first().map(Word::plain);
            match first {
                Some(Some(first)) if first == name => words[0] = Word::of(wraps),
                Some(Some(first)) if !first.starts_with('-') => {}
                _ => words.insert(0, Word::of(wraps)),
            }
        }
        let first = words.first().ok_or(TemplateFault::Empty)?;
        match first.plain() {
            Some("") => return Err(TemplateFault::Empty),
            Some(_) => {}
            None => return Err(TemplateFault::NoProgram),
        }
        Ok(Template {
            words,
            text: text.to_owned(),
        })
    }

    pub fn program(&self) -> &str {
        self.words.first().and_then(Word::plain).unwrap_or_default()
    }

    /// The names in `{}`, each once.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<&str> = Vec::new();
        for part in self.words.iter().flat_map(|word| &word.0) {
            if let Part::Value(name) = part
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names.into_iter()
    }

    /// The words behind the program that every call has, up to the first parameter or option: the
    /// command, as in `repo delete`.
    pub fn command(&self) -> String {
        let words = self.words.iter().skip(1).map_while(Word::plain);
        let words = words.take_while(|word| !word.starts_with('-'));
        words.collect::<Vec<_>>().join(" ")
    }

    /// The words that have no parameter, for a name.
    pub fn plain_words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().filter_map(Word::plain)
    }

    /// What its author may have meant for a shell.
    pub fn warnings(&self) -> Vec<String> {
        let operators = self.plain_words().filter(|word| OPERATORS.contains(word));
        let dollar = |part: &Part| matches!(part, Part::Text(text) if text.contains("$("));
        let mut warnings: Vec<String> = operators
            .map(|word| format!("no shell reads it: the program gets '{word}' as a word"))
            .collect();
        if self.words.iter().flat_map(|word| &word.0).any(dollar) {
            warnings.push("no shell reads it: $() stays as it is".to_owned());
        }
        warnings
    }

    /// The words of one call, without the program.
    pub fn fill(
        &self,
        args: &Map<String, Value>,
        parameters: &[Parameter],
    ) -> Result<Vec<String>, Unfit> {
        let mut words = Vec::new();
        let mut options_are_over = false;
        for word in self.words.iter().skip(1) {
            options_are_over |= word.plain() == Some("--");
            let filled = word.fill(args, parameters)?;
            if !options_are_over && let Some(Part::Value(name)) = word.0.first() {
                let is_text = parameters
                    .iter()
                    .any(|one| one.name == *name && one.kind.is_text());
                let is_option = |word: &String| word.len() > 1 && word.starts_with('-');
                if is_text && filled.iter().any(is_option) {
                    let program = self.program();
                    let what = format!(
                        "a value that begins with '-' would be an option of '{program}'; its \
                         author can allow it by writing --option={{{name}}}, or -- before it"
                    );
                    return Err(Unfit::new(name, what, false));
                }
            }
            words.extend(filled);
        }
        Ok(words)
    }
}

impl Word {
    fn of(text: &str) -> Self {
        Word(vec![Part::Text(text.to_owned())])
    }

    /// Its text, where it has no parameter.
    fn plain(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    fn push(&mut self, c: char) {
        match self.0.last_mut() {
            Some(Part::Text(text)) => text.push(c),
            _ => self.0.push(Part::Text(c.to_string())),
        }
    }

    /// One word; or one for each item, where the word is a list and nothing else.
    fn fill(
        &self,
        args: &Map<String, Value>,
        parameters: &[Parameter],
    ) -> Result<Vec<String>, Unfit> {
        if let [Part::Value(name)] = self.0.as_slice()
            && let Value::Array(items) = value_of(name, args, parameters)?
        {
            return items.iter().map(|item| text_of(name, item)).collect();
        }
        let mut word = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => word += text,
                Part::Value(name) => match value_of(name, args, parameters)? {
                    Value::Array(items) if is_list(name, parameters) => {
                        let texts: Result<Vec<String>, Unfit> =
                            items.iter().map(|item| text_of(name, item)).collect();
                        word += &texts?.join(",");
                    }
                    value => word += &text_of(name, value)?,
                },
            }
        }
        Ok(vec![word])
    }
}

fn is_list(name: &str, parameters: &[Parameter]) -> bool {
    let lists = [Kind::Strings, Kind::Integers, Kind::List];
    let mut all = parameters.iter();
    all.any(|one| one.name == name && lists.contains(&one.kind))
}

fn value_of<'a>(
    name: &str,
    args: &'a Map<String, Value>,
    parameters: &'a [Parameter],
) -> Result<&'a Value, Unfit> {
    let given = args.get(name).filter(|value| !value.is_null());
    let default = || {
        let parameter = parameters.iter().find(|one| one.name == name)?;
        parameter.default.as_ref()
    };
    given.or_else(default).ok_or_else(|| {
        let what = "it is missing, and the command has a place for it";
        Unfit::new(name, what, true)
    })
}

fn text_of(name: &str, value: &Value) -> Result<String, Unfit> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.contains('\0') {
        let what = "it has a NUL byte, which no word of a program can have";
        return Err(Unfit::new(name, what, false));
    }
    Ok(text)
}

/// Words as a shell separates them, with its quotes; nothing else of a shell.
fn split(text: &str) -> Result<Vec<Word>, TemplateFault> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut chars = text.char_indices().peekable();
    let mut quote: Option<char> = None;
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None | Some('"'), '\\') => match chars.next() {
                Some((_, next)) => {
                    let word = word.get_or_insert_default();
                    if quote.is_some() && !matches!(next, '"' | '\\' | '$' | '`') {
                        word.push('\\');
                    }
                    word.push(next);
                }
                None => return Err(TemplateFault::OpenEscape),
            },
            (_, '{') => {
                let rest = &text[at + 1..];
                let name = rest.split_once('}').map(|(name, _)| name);
                let word = word.get_or_insert_default();
                match name.filter(|name| is_placeholder_name(name)) {
                    Some(name) => {
                        word.0.push(Part::Value(name.to_owned()));
                        let end = at + 1 + name.len();
                        while chars.next_if(|(at, _)| *at <= end).is_some() {}
                    }
                    None => word.push('{'),
                }
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    match quote {
        Some(open) => Err(TemplateFault::OpenQuote(open)),
        None => {
            words.extend(word);
            Ok(words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parameter(name: &str, kind: Kind) -> Parameter {
        Parameter {
            name: name.to_owned(),
            kind,
            required: true,
            default: None,
            description: None,
            choices: None,
        }
    }

    fn fill(command: &str, kind: Kind, value: Value) -> Result<Vec<String>, Unfit> {
        let template = Template::parse(command, None).unwrap();
        let args = json!({"x": value});
        template.fill(args.as_object().unwrap(), &[parameter("x", kind)])
    }

    #[test]
    fn value_stays_in_its_word_whatever_it_is() {
        for value in ["$(id)", "\"; id; \"", "`id`", "a b\nc", "", "-", "{x}", "'"] {
            let words = fill("inbox find {x} --json", Kind::String, json!(value)).unwrap();
            assert_eq!(words, ["find", value, "--json"], "{value:?}");
            let words = fill("inbox 'q={x} end'", Kind::String, json!(value)).unwrap();
            assert_eq!(words, [format!("q={value} end")]);
        }
        let list = json!(["a b", "$(id)", "3"]);
        assert_eq!(
            fill("inbox delete --ids {x}", Kind::Strings, list.clone()).unwrap(),
            ["delete", "--ids", "a b", "$(id)", "3"]
        );
        assert_eq!(
            fill("inbox --ids={x}", Kind::Strings, list).unwrap(),
            ["--ids=a b,$(id),3"]
        );
        assert_eq!(fill("head {x}", Kind::Integer, json!(-5)).unwrap(), ["-5"]);
    }

    #[test]
    fn value_that_would_be_an_option_is_refused_unless_the_author_allows_it() {
        for (command, kind, value) in [
            ("inbox find {x}", Kind::String, json!("--flag")),
            ("inbox {x}more", Kind::String, json!("-f")),
            ("inbox --ids {x}", Kind::Strings, json!(["a", "--all"])),
        ] {
            let refused = fill(command, kind, value).unwrap_err();
            assert!(refused.what.contains("begins with '-'"), "{refused:?}");
        }
        for command in ["inbox find --text={x}", "inbox find -- {x}"] {
            assert!(fill(command, Kind::String, json!("--flag")).is_ok());
        }
        let nul = fill("inbox {x}", Kind::String, json!("a\0b")).unwrap_err();
        assert!(nul.what.contains("NUL"), "{nul:?}");
        let missing = fill("inbox {y}", Kind::String, json!("a")).unwrap_err();
        assert!(missing.missing && missing.name == "y");
    }

    #[test]
    fn braces_that_hold_no_name_are_a_part_of_the_command() {
        let template = Template::parse("awk '{print $1}' {} {file}", None).unwrap();
        assert_eq!(template.placeholders().collect::<Vec<_>>(), ["file"]);
        assert_eq!(
            template.plain_words().collect::<Vec<_>>(),
            ["awk", "{print $1}", "{}"]
        );
        assert_eq!(
            Template::parse("{x} a", None).unwrap_err(),
            TemplateFault::NoProgram
        );
        assert_eq!(
            Template::parse(" ''", None).unwrap_err(),
            TemplateFault::Empty
        );
        assert_eq!(
            Template::parse("a 'b", None).unwrap_err(),
            TemplateFault::OpenQuote('\'')
        );
        assert_eq!(Template::parse("a | b", None).unwrap().warnings().len(), 1);
    }

    #[test]
    fn adapter_runs_what_it_wraps() {
        let program = |command: &str| {
            let template = Template::parse(command, Some("/opt/rg")).unwrap();
            template.program().to_owned()
        };
        assert_eq!(program("rg --json {x}"), "/opt/rg");
        assert_eq!(program("--json {x}"), "/opt/rg");
        assert_eq!(program("{x}"), "/opt/rg");
        assert_eq!(program("grep {x}"), "grep");
    }
}
