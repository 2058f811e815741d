//! Programs that a result may be piped through, where they read nothing but that result.

use super::shell::Word;

/// A filter, and what it may be called with.
struct Filter {
    name: &'static str,
    /// Short options without a value.
    flags: &'static str,
    /// Short options with one.
    valued: &'static str,
    /// Words that are no options: a pattern, a program of jq. One more would be a file.
    words: usize,
}

const FILTERS: [Filter; 10] = [
    filter("jq", "rcsejaSMC", "", 1),
    filter("head", "qv", "nc", 0),
    filter("tail", "qv", "nc", 0),
    filter("grep", "ivnowxchEFPqs", "ABCm", 1),
    filter("sort", "nrufhbgMV", "kt", 0),
    filter("uniq", "cdui", "fsw", 0),
    filter("wc", "lwcmL", "", 0),
    filter("cut", "sz", "dfcb", 0),
    filter("column", "tnex", "sc", 0),
    filter("cat", "nbs", "", 0),
];

/// Long options that name no file, without a value or with one behind `=`.
const LONG: [&str; 14] = [
    "--raw-output",
    "--compact-output",
    "--slurp",
    "--exit-status",
    "--sort-keys",
    "--tab",
    "--lines",
    "--bytes",
    "--ignore-case",
    "--invert-match",
    "--count",
    "--reverse",
    "--numeric-sort",
    "--unique",
];

const fn filter(
    name: &'static str,
    flags: &'static str,
    valued: &'static str,
    words: usize,
) -> Filter {
    Filter {
        name,
        flags,
        valued,
        words,
    }
}

/// None: it is no filter. An error says what it would do besides.
pub fn check(words: &[Word]) -> Option<Result<(), String>> {
    let (first, rest) = words.split_first()?;
    let filter = FILTERS.iter().find(|filter| filter.name == first.text)?;
    Some(filter.check(rest))
}

impl Filter {
    fn check(&self, words: &[Word]) -> Result<(), String> {
        let name = self.name;
        let mut free = Vec::new();
        let mut words = words.iter().map(|word| word.text.as_str());
        while let Some(word) = words.next() {
            if self.name == "jq" && matches!(word, "--arg" | "--argjson") {
                words.nth(1);
            } else if let Some(long) = word.strip_prefix("--") {
                let option = long.split('=').next().unwrap_or(long);
                if !LONG.iter().any(|known| known[2..] == *option) {
                    return Err(format!("it calls '{name}' with --{option}"));
                }
            } else if word.len() > 1 && word.starts_with('-') {
                if self.takes_next(&word[1..])? {
                    words.next();
                }
            } else {
                free.push(word);
            }
        }
        if free.len() > self.words || free.contains(&"-") {
            return Err(format!("'{name}' would read a file"));
        }
        match name {
            "jq" if free.iter().any(|program| reads_more(program)) => {
                Err("'jq' would read more than the result".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Whether short options take the next word as their value.
    fn takes_next(&self, options: &str) -> Result<bool, String> {
        // `head -5`.
        if options.bytes().all(|c| c.is_ascii_digit()) {
            return Ok(false);
        }
        for (at, option) in options.char_indices() {
            if self.valued.contains(option) {
                return Ok(at + option.len_utf8() == options.len());
            }
            if !self.flags.contains(option) {
                return Err(format!("it calls '{}' with -{option}", self.name));
            }
        }
        Ok(false)
    }
}

/// Whether a program of jq reads the environment or a file.
fn reads_more(program: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = program.split(|c: char| !is_letter(c));
    words.any(|word| {
        matches!(
            word,
            "env" | "ENV" | "import" | "include" | "input_filename" | "modulemeta"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assist::shell;

    fn checked(line: &str) -> Option<Result<(), String>> {
        check(&shell::commands(line).unwrap()[0])
    }

    #[test]
    fn filters_read_nothing_but_the_result() {
        for good in [
            "jq .c",
            "jq -r '.data[] | select(.id == $n)' --arg n 5",
            "jq -rc --sort-keys .",
            "head -n 5",
            "head -5",
            "tail -n1",
            "grep -iE 'a|b'",
            "sort -t, -k 2 -nr",
            "cut -d , -f 1",
            "wc -l",
            "cat",
        ] {
            assert_eq!(checked(good), Some(Ok(())), "{good}");
        }
        for bad in [
            "cat /root/.ati/credentials",
            "grep -r key /root",
            "grep key credentials",
            "grep -f x y",
            "jq -n env",
            "jq env",
            "jq '$ENV.HOME'",
            "jq . /etc/passwd",
            "jq --rawfile a /etc/passwd .",
            "sort -o x",
            "sort --output=x",
            "sort --compress-program=sh",
            "uniq a b",
            "tail -f x",
        ] {
            assert!(matches!(checked(bad), Some(Err(_))), "{bad}");
        }
        assert_eq!(checked("rm x"), None);
    }
}
