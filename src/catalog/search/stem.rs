//! Porter's stemmer (1980) for English words: `invoices`, `invoicing` and `invoice` are one word.
//!
//! By hand, because the crates for it are a decade old, or bring the stemmers of twenty languages.

/// Shorter words have no suffix that could be taken away.
const SHORTEST: usize = 3;

/// Cuts the suffix off a word in lower case. A word that isn't of plain letters stays as it is.
pub fn stem(word: &mut String) {
    if word.len() < SHORTEST || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return;
    }
    plurals(word);
    past_and_progressive(word);
    if word.ends_with('y') && has_vowel(&word[..word.len() - 1]) {
        replace_end(word, 1, "i");
    }
    replace_first(word, &DOUBLE_SUFFIXES, 1);
    replace_first(word, &SUFFIXES, 1);
    cut_last_suffix(word);
    tidy(word);
}

const DOUBLE_SUFFIXES: [(&str, &str); 20] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("abli", "able"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
];

const SUFFIXES: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

/// Longer ones before those that they end with.
const LAST_SUFFIXES: [&str; 19] = [
    "ement", "ment", "ance", "ence", "able", "ible", "ant", "ent", "ion", "ism", "ate", "iti",
    "ous", "ive", "ize", "al", "er", "ic", "ou",
];

fn plurals(word: &mut String) {
    if word.ends_with("sses") || word.ends_with("ies") {
        replace_end(word, 2, "");
    } else if word.ends_with('s') && !word.ends_with("ss") {
        replace_end(word, 1, "");
    }
}

fn past_and_progressive(word: &mut String) {
    if let Some(stem) = word.strip_suffix("eed") {
        if measure(stem) > 0 {
            replace_end(word, 1, "");
        }
        return;
    }
    let suffix = ["ed", "ing"].into_iter().find(|suffix| {
        let stem = word.strip_suffix(suffix);
        stem.is_some_and(has_vowel)
    });
    let Some(suffix) = suffix else { return };
    replace_end(word, suffix.len(), "");
    if ["at", "bl", "iz"].iter().any(|end| word.ends_with(end)) {
        word.push('e');
    } else if ends_with_double_consonant(word) && !word.ends_with(['l', 's', 'z']) {
        word.pop();
    } else if measure(word) == 1 && ends_with_short_syllable(word) {
        word.push('e');
    }
}

fn cut_last_suffix(word: &mut String) {
    let Some(suffix) = LAST_SUFFIXES.iter().find(|suffix| word.ends_with(*suffix)) else {
        return;
    };
    let stem = &word[..word.len() - suffix.len()];
    if measure(stem) > 1 && (*suffix != "ion" || stem.ends_with(['s', 't'])) {
        replace_end(word, suffix.len(), "");
    }
}

fn tidy(word: &mut String) {
    if let Some(stem) = word.strip_suffix('e') {
        let syllables = measure(stem);
        if syllables > 1 || (syllables == 1 && !ends_with_short_syllable(stem)) {
            word.pop();
        }
    }
    if word.ends_with("ll") && measure(word) > 1 {
        word.pop();
    }
}

fn replace_first(word: &mut String, suffixes: &[(&str, &str)], least: usize) {
    let found = suffixes.iter().find(|(suffix, _)| word.ends_with(suffix));
    if let Some((suffix, new)) = found
        && measure(&word[..word.len() - suffix.len()]) >= least
    {
        replace_end(word, suffix.len(), new);
    }
}

fn replace_end(word: &mut String, cut: usize, new: &str) {
    word.truncate(word.len() - cut);
    word.push_str(new);
}

fn is_consonant(word: &[u8], at: usize) -> bool {
    match word[at] {
        b'a' | b'e' | b'i' | b'o' | b'u' => false,
        b'y' => at == 0 || !is_consonant(word, at - 1),
        _ => true,
    }
}

/// How often a vowel is followed by a consonant: Porter's m.
fn measure(word: &str) -> usize {
    let word = word.as_bytes();
    let ends = |at: &usize| is_consonant(word, *at) && !is_consonant(word, at - 1);
    (1..word.len()).filter(ends).count()
}

fn has_vowel(word: &str) -> bool {
    (0..word.len()).any(|at| !is_consonant(word.as_bytes(), at))
}

fn ends_with_double_consonant(word: &str) -> bool {
    let word = word.as_bytes();
    match word {
        [.., a, b] => a == b && is_consonant(word, word.len() - 1),
        _ => false,
    }
}

/// Consonant, vowel, consonant, the last one not w, x or y: `fil` of `filing`.
fn ends_with_short_syllable(word: &str) -> bool {
    let word = word.as_bytes();
    let n = word.len();
    n >= 3
        && is_consonant(word, n - 1)
        && !is_consonant(word, n - 2)
        && is_consonant(word, n - 3)
        && !matches!(word[n - 1], b'w' | b'x' | b'y')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_have_one_stem() {
        let stem = |word: &str| {
            let mut word = word.to_owned();
            stem(&mut word);
            word
        };
        for family in [
            &["create", "creates", "created", "creating"][..],
            &["invoice", "invoices", "invoicing"],
            &["delete", "deleted", "deletion"],
            &["repository", "repositories"],
            &["cancel", "cancels"],
            &["stop", "stopped", "stopping"],
            &["file", "files", "filing"],
            &["retrieve", "retrieving", "retrieval"],
        ] {
            for form in family {
                assert_eq!(stem(form), stem(family[0]), "{form}");
            }
        }
        // Porter's own examples.
        for (word, wanted) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("motoring", "motor"),
            ("hopping", "hop"),
            ("relational", "relat"),
            ("vietnamization", "vietnam"),
            ("electrical", "electr"),
            ("adjustment", "adjust"),
            ("adoption", "adopt"),
            ("controll", "control"),
            ("sky", "sky"),
        ] {
            assert_eq!(stem(word), wanted, "{word}");
        }
        // Neither ids nor other alphabets.
        for same in ["s3", "größen", "is", "a"] {
            assert_eq!(stem(same), same);
        }
    }
}
