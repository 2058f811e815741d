//! A query, taken apart: what is looked for, and under which other words.

use super::stem::stem;
use super::synonyms;
use super::text::{is_stop_word, squeezed, words};
use super::wish::{self, Wish};

/// Terms of a query; further ones are ignored.
const MOST_TERMS: usize = 16;
const LONGEST: usize = 500;

pub struct Query<'q> {
    pub text: &'q str,
    pub terms: Vec<Term>,
    pub wish: Option<Wish>,
}

pub struct Term {
    pub word: String,
    /// As it stands in the query, in lower case.
    pub written: String,
    /// Two neighbours as one word, which only counts where there is one.
    pub joined: bool,
    pub synonyms: Vec<String>,
}

impl<'q> Query<'q> {
    pub fn new(text: &'q str) -> Self {
        let text = text[..text.floor_char_boundary(LONGEST)].trim();
        let mut all: Vec<String> = Vec::new();
        words(text, |word| {
            if all.len() < 4 * MOST_TERMS {
                all.push(word.to_owned());
            }
        });
        let wish = wish::of(&all);
        let content = |word: &String| !is_stop_word(word);
        // A query of stop words alone searches for these.
        if all.iter().any(content) {
            all.retain(content);
        }
        all.truncate(MOST_TERMS);
        let mut terms: Vec<Term> = Vec::new();
        let pairs = all.windows(2).map(|pair| pair.concat());
        for (word, joined) in all
            .iter()
            .cloned()
            .map(|word| (word, false))
            .chain(pairs.map(|word| (word, true)))
        {
            let stemmed = stemmed(&word);
            if terms.iter().any(|known| known.word == stemmed) {
                continue;
            }
            let mut synonyms: Vec<String> = synonyms::of(&word).map(self::stemmed).collect();
            synonyms.retain(|other| *other != stemmed);
            synonyms.sort();
            synonyms.dedup();
            terms.push(Term {
                word: stemmed,
                written: word,
                joined,
                synonyms,
            });
        }
        Query { text, terms, wish }
    }

    /// Names of tools that the query may say: the whole of it, or a word that is an identifier.
    pub fn names(&self) -> impl Iterator<Item = (bool, String)> {
        let words = self.text.split_whitespace();
        let identifiers = words.filter(|word| {
            let word = word.trim_matches(|c: char| !c.is_alphanumeric());
            let mut parts = 0;
            self::words(word, |_| parts += 1);
            parts > 1
        });
        let whole = std::iter::once((true, squeezed(self.text)));
        let names = whole.chain(identifiers.map(|word| (false, squeezed(word))));
        names.filter(|(_, name)| !name.is_empty())
    }
}

fn stemmed(word: &str) -> String {
    let mut word = word.to_owned();
    stem(&mut word);
    word
}
