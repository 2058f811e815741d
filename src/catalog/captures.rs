//! `cli_output_args` and `cli_output_positional`: which words of a program's command line name
//! files that the program writes.

use std::collections::BTreeMap;
use std::ops::Range;

/// The rules of one provider.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CaptureRules {
    /// Flags whose value is a path.
    flags: Vec<String>,
    /// Subcommands, the longest first.
    subcommands: Vec<Subcommand>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Subcommand {
    words: Vec<String>,
    /// The path's place among the words after these.
    index: usize,
}

/// Where a path stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub word: usize,
    /// The path within its word: behind `--flag=` or `-f`, or all of it.
    pub path: Range<usize>,
}

/// A rule that can never match, or that says two things.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    #[error("'{0}' is no flag: expected one word without '='")]
    Flag(String),
    #[error("'{0}': a subcommand has no words that begin with '-'")]
    Subcommand(String),
    #[error("'{0}' is there twice")]
    Twice(String),
}

impl CaptureRules {
    /// What can be used of the rules, and why the rest can't.
    pub fn new(flags: &[String], positional: &BTreeMap<String, usize>) -> (Self, Vec<RuleFault>) {
        let (mut rules, mut faults) = (CaptureRules::default(), Vec::new());
        for flag in flags {
            // Not all begin with a dash: dd has `of=`.
            let is_name = flag.contains(|c: char| c != '-');
            let is_split = flag.contains(|c: char| c == '=' || c.is_whitespace());
            if is_name && !is_split {
                rules.flags.push(flag.clone());
            } else {
                faults.push(RuleFault::Flag(flag.clone()));
            }
        }
        for (text, &index) in positional {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            if words.iter().any(|word| word.starts_with('-')) {
                faults.push(RuleFault::Subcommand(text.clone()));
            } else if rules.subcommands.iter().any(|known| known.words == words) {
                faults.push(RuleFault::Twice(words.join(" ")));
            } else {
                rules.subcommands.push(Subcommand { words, index });
            }
        }
        let longest = |subcommand: &Subcommand| std::cmp::Reverse(subcommand.words.len());
        rules.subcommands.sort_by_key(longest);
        (rules, faults)
    }

    /// Whether no word is ever a path.
    pub fn is_empty(&self) -> bool {
        self.flags.is_empty() && self.subcommands.is_empty()
    }

    /// The paths among the caller's words, in their order.
    pub fn find(&self, words: &[String]) -> Vec<Slot> {
        let mut slots = Vec::new();
        // Words that are no value of a capturing flag, and no flag: subcommands and arguments.
        let mut plain = Vec::new();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let parts = word.split_once('=');
            if let Some((_, path)) = parts.filter(|(name, _)| self.has_flag(name)) {
                slots.extend(slot(at, word.len() - path.len(), word));
            } else if self.has_flag(word) {
                at += 1;
                // Whatever it is: a program takes a value that begins with a dash, too.
                slots.extend(words.get(at).and_then(|value| slot(at, 0, value)));
            } else if let Some(start) = self.glued(word) {
                slots.extend(slot(at, start, word));
            } else if !word.starts_with('-') {
                plain.push(at);
            }
            at += 1;
        }
        let is_called = |subcommand: &&Subcommand| {
            let begin = plain.iter().take(subcommand.words.len());
            begin.map(|&at| &words[at]).eq(&subcommand.words)
        };
        if let Some(subcommand) = self.subcommands.iter().find(is_called) {
            let place = subcommand.words.len().saturating_add(subcommand.index);
            let found = plain.get(place).and_then(|&at| slot(at, 0, &words[at]));
            slots.extend(found);
        }
        slots.sort_by_key(|slot| slot.word);
        slots
    }

    fn has_flag(&self, word: &str) -> bool {
        let mut flags = self.flags.iter();
        flags.any(|flag| flag.eq_ignore_ascii_case(word))
    }

    /// Where the value begins in `-ovalue`: only flags of one letter have it there.
    fn glued(&self, word: &str) -> Option<usize> {
        let mut letters = word.char_indices().skip(1);
        let (_, letter) = letters.next()?;
        let (start, _) = letters.next()?;
        let is_short = word.starts_with('-') && letter != '-';
        (is_short && self.has_flag(&word[..start])).then_some(start)
    }
}

/// An empty value is no path. `-` is standard output, by an old convention, which the caller gets
/// anyway.
fn slot(word: usize, start: usize, text: &str) -> Option<Slot> {
    let path = start..text.len();
    let is_path = !matches!(&text[path.clone()], "" | "-");
    is_path.then_some(Slot { word, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> CaptureRules {
        let flags = ["--output", "-o", "--out"].map(str::to_owned);
        let positional = [
            ("browse screenshot", 0),
            (" browse  screenshot full", 1),
            ("browse", 2),
            ("print", 1),
        ];
        let positional = positional.map(|(text, index)| (text.to_owned(), index));
        CaptureRules::new(&flags, &positional.into()).0
    }

    /// The paths that are found, as `word:path`.
    fn found(line: &[&str]) -> Vec<String> {
        let words: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        let slots = rules().find(&words);
        let shown = slots.iter().map(|slot| {
            let path = &words[slot.word][slot.path.clone()];
            format!("{}:{path}", slot.word)
        });
        shown.collect()
    }

    #[test]
    fn value_of_a_flag_is_found_in_both_forms_and_any_case() {
        assert_eq!(found(&["x", "--output", "a.png"]), ["2:a.png"]);
        assert_eq!(found(&["x", "--OutPut=a=b.png"]), ["1:a=b.png"]);
        assert_eq!(
            found(&["-O", "a", "--out=b", "-o=c"]),
            ["1:a", "2:b", "3:c"]
        );
        // Each time it is given.
        assert_eq!(found(&["-o", "a", "-o", "b"]), ["1:a", "3:b"]);
        // Another flag, or only the beginning of one.
        assert_eq!(found(&["--outputs", "a", "--outp=b", "-c"]), [""; 0]);
    }

    #[test]
    fn value_glued_to_a_flag_of_one_letter_is_found() {
        assert_eq!(found(&["-o/tmp/x", "-Oy=z"]), ["0:/tmp/x", "1:y=z"]);
        assert_eq!(
            found(&["-o\u{e4}.png", "-o--out"]),
            ["0:\u{e4}.png", "1:--out"]
        );
        // Standard output, other letters, and words without a dash.
        assert_eq!(
            found(&["-o-", "-xo", "-\u{e4}o", "--o", "o/x", "-"]),
            [""; 0]
        );
        // A flag of its own isn't a value.
        let flags = ["-o", "-of", "o"].map(str::to_owned);
        let (rules, _) = CaptureRules::new(&flags, &BTreeMap::new());
        let slots = rules.find(&["-of", "x", "out"].map(str::to_owned));
        assert_eq!(
            slots,
            [Slot {
                word: 1,
                path: 0..1
            }]
        );
    }

    #[test]
    fn value_is_a_path_whatever_it_begins_with() {
        assert_eq!(found(&["-o", "--out"]), ["1:--out"]);
        assert_eq!(
            found(&["-o", "-x/../../etc/passwd"]),
            ["1:-x/../../etc/passwd"]
        );
        assert_eq!(found(&["--out=-o", "a"]), ["0:-o"]);
        assert_eq!(found(&["-o", "a\nb\0c"]), ["1:a\nb\0c"]);
    }

    #[test]
    fn flag_without_a_path_is_left_alone() {
        assert_eq!(found(&["x", "--output"]), [""; 0]);
        assert_eq!(found(&["--output=", "--output", "", "-o", "-"]), [""; 0]);
        assert_eq!(found(&[]), [""; 0]);
    }

    #[test]
    fn longest_subcommand_decides_which_argument_is_the_path() {
        assert_eq!(
            found(&["browse", "screenshot", "/tmp/x.png"]),
            ["2:/tmp/x.png"]
        );
        assert_eq!(
            found(&["browse", "screenshot", "full", "page", "/tmp/x.png"]),
            ["4:/tmp/x.png"]
        );
        // It has none here, and no shorter one takes its place.
        assert_eq!(found(&["browse", "screenshot", "full", "page"]), [""; 0]);
        assert_eq!(found(&["browse", "a", "b", "c"]), ["3:c"]);
        assert_eq!(found(&["print", "a"]), [""; 0]);
        assert_eq!(found(&["Print", "a", "b"]), [""; 0]);
        assert_eq!(found(&["now", "print", "a", "b"]), [""; 0]);
    }

    #[test]
    fn words_with_a_dash_do_not_count() {
        assert_eq!(
            found(&["--", "browse", "-v", "screenshot", "--full=1", "x.png"]),
            ["5:x.png"]
        );
        assert_eq!(found(&["browse", "screenshot", "-", "x"]), ["3:x"]);
    }

    #[test]
    fn word_of_a_flag_is_no_argument_and_is_found_once() {
        assert_eq!(found(&["browse", "screenshot", "-o", "a.png"]), ["3:a.png"]);
        assert_eq!(
            found(&["browse", "-o", "a", "screenshot", "b"]),
            ["2:a", "4:b"]
        );
        assert_eq!(
            found(&["-o", "browse", "browse", "screenshot", "b", "--out=c"]),
            ["1:browse", "4:b", "5:c"]
        );
    }

    #[test]
    fn empty_subcommand_counts_from_the_first_argument() {
        let find = |index: usize| {
            let (rules, faults) = CaptureRules::new(&[], &[(String::new(), index)].into());
            assert_eq!(faults, []);
            rules.find(&["-v", "in.jpg", "out.png"].map(str::to_owned))
        };
        assert_eq!(
            find(1),
            [Slot {
                word: 2,
                path: 0..7
            }]
        );
        assert_eq!(find(2), []);
        assert_eq!(find(usize::MAX), []);
    }

    #[test]
    fn flag_without_a_dash_is_found() {
        let (rules, faults) = CaptureRules::new(&["of".to_owned()], &BTreeMap::new());
        assert_eq!(faults, []);
        let slots = rules.find(&["if=/dev/zero", "of=x.bin"].map(str::to_owned));
        assert_eq!(
            slots,
            [Slot {
                word: 1,
                path: 3..8
            }]
        );
    }

    #[test]
    fn rules_that_can_not_match_are_faults_and_the_others_count() {
        for flag in ["", "-", "--", "--out=", "--out put", " -o"] {
            let flags = [flag.to_owned(), "-f".to_owned()];
            let (rules, faults) = CaptureRules::new(&flags, &BTreeMap::new());
            assert_eq!(faults, [RuleFault::Flag(flag.to_owned())]);
            assert_eq!(rules.find(&["-f", "a"].map(str::to_owned)).len(), 1);
        }
        let positional = |texts: &[&str]| {
            let each = texts.iter().map(|text| ((*text).to_owned(), 0)).collect();
            CaptureRules::new(&[], &each)
        };
        let (rules, faults) = positional(&["get --all"]);
        assert_eq!(faults, [RuleFault::Subcommand("get --all".into())]);
        assert!(rules.is_empty());
        let (rules, faults) = positional(&["a b", "a  b"]);
        assert_eq!(faults, [RuleFault::Twice("a b".into())]);
        assert!(!rules.is_empty());
        assert!(positional(&[]).0.is_empty());
    }
}
