//! The scorer that ranked tools before there was an index, to compare with: each term in each text
//! of each tool, as a substring or by Jaro-Winkler.

use ati::catalog::Tool;

/// Results of one search.
const MOST: usize = 20;
/// Terms of a query; further ones are ignored.
const MOST_TERMS: usize = 16;
const LONGEST_QUERY: usize = 500;

const STOP_WORDS: [&str; 34] = [
    "a", "an", "and", "any", "are", "at", "be", "by", "can", "do", "does", "for", "from", "have",
    "how", "i", "in", "is", "it", "me", "my", "of", "on", "or", "that", "the", "there", "to",
    "tool", "tools", "we", "what", "which", "with",
];

const FUZZY: f64 = 0.8;
const ALIKE: f64 = 0.85;

/// A word of a query, in lower case.
pub struct Term {
    pub text: String,
    /// Characters of a term that is also matched fuzzily: shorter ones resemble too many words.
    fuzzy: bool,
}

/// The best matches, best first; ties stay in their order.
pub fn search<'a>(tools: &'a [(Haystack, &'a str)], query: &str) -> Vec<&'a str> {
    let terms = terms(query);
    let score = |haystack: &Haystack| score(&terms, |term| haystack.points(term));
    let scored = tools
        .iter()
        .filter_map(|(haystack, name)| Some((score(haystack)?, *name)));
    let mut found: Vec<(f64, &str)> = scored.collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(MOST);
    found.into_iter().map(|(_, name)| name).collect()
}

pub fn terms(query: &str) -> Vec<Term> {
    let query = &query[..query.floor_char_boundary(LONGEST_QUERY)];
    let words = || {
        query
            .split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':' | '-' | '.'))
            .map(str::to_lowercase)
            .filter(|word| word.chars().count() >= 2)
    };
    let content: Vec<String> = words()
        .filter(|word| !STOP_WORDS.contains(&word.as_str()))
        .collect();
    // A query of stop words alone searches for these.
    let chosen = if content.is_empty() {
        words().collect()
    } else {
        content
    };
    chosen
        .into_iter()
        .take(MOST_TERMS)
        .map(|text| Term {
            fuzzy: text.chars().count() >= 4,
            text,
        })
        .collect()
}

/// None where fewer than half of the terms are found.
fn score(terms: &[Term], points: impl Fn(&Term) -> f64) -> Option<f64> {
    let (mut total, mut matched) = (0.0, 0);
    for term in terms {
        let points = points(term);
        if points > 0.0 {
            total += points;
            matched += 1;
        }
    }
    (matched > 0 && 2 * matched >= terms.len()).then(|| total * matched as f64 / terms.len() as f64)
}

/// A tool's searchable texts, in lower case; made at the first search.
pub struct Haystack {
    name: String,
    tags: Vec<String>,
    provider: String,
    category: String,
    description: String,
    hint: String,
}

impl Haystack {
    pub fn new(tool: &Tool) -> Self {
        Haystack {
            name: tool.name.to_lowercase(),
            tags: tool.tags.iter().map(|tag| tag.to_lowercase()).collect(),
            provider: tool.provider.name.to_lowercase(),
            category: lower(tool.category()),
            description: tool.description.to_lowercase(),
            hint: lower(tool.hint.as_deref()),
        }
    }

    fn points(&self, term: &Term) -> f64 {
        let word = term.text.as_str();
        let mut points = if self.name == word {
            10.0
        } else {
            5.0 * in_words(&self.name, term)
        };
        let tag = |tag: &String| in_words(tag, term);
        points += 4.0 * self.tags.iter().map(tag).fold(0.0, f64::max);
        points += 3.0 * in_words(&self.provider, term);
        points += 3.0 * in_words(&self.category, term);
        points += 2.0 * in_words(&self.description, term);
        points += if self.hint.contains(word) { 1.5 } else { 0.0 };
        points
    }
}

/// 1 where the text contains the term, less where one of its words resembles it.
pub fn in_words(text: &str, term: &Term) -> f64 {
    if text.contains(&term.text) {
        return 1.0;
    }
    let length = term.text.len();
    let alike = |word: &str| {
        // Words of very different lengths can't reach the threshold.
        word.len() >= 4
            && word.len().abs_diff(length) <= 3
            && strsim::jaro_winkler(word, &term.text) >= ALIKE
    };
    if term.fuzzy && text.split(|c: char| !c.is_alphanumeric()).any(alike) {
        FUZZY
    } else {
        0.0
    }
}

fn lower(text: Option<&str>) -> String {
    text.unwrap_or_default().to_lowercase()
}
