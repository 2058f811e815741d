//! Search over skills: by the words of a query, found in a skill's texts or alike.

use std::sync::Arc;

use super::document::Skill;

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
struct Term {
    text: String,
    /// Long enough to be matched fuzzily: shorter ones resemble too many words.
    fuzzy: bool,
}

/// The skills that match, best first; ties stay in their order.
pub fn search<'a>(
    skills: impl Iterator<Item = &'a Arc<Skill>>,
    query: &str,
) -> Vec<&'a Arc<Skill>> {
    let terms = terms(query);
    let mut found: Vec<(f64, &Arc<Skill>)> = skills
        .filter_map(|skill| Some((score(skill, &terms)?, skill)))
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, skill)| skill).collect()
}

fn points(skill: &Skill, term: &Term) -> f64 {
    let lower = |text: &str| text.to_lowercase();
    let best = |texts: &[String]| {
        let each = texts.iter().map(|text| in_words(&lower(text), term));
        each.fold(0.0, f64::max)
    };
    let name = lower(&skill.name);
    let mut points = match name == term.text {
        true => 10.0,
        false => 5.0 * in_words(&name, term),
    };
    points += 4.0 * best(&skill.keywords);
    points += 3.0 * best(&skill.bindings.tools);
    points += 3.0 * best(&skill.bindings.providers);
    points += 3.0 * best(&skill.bindings.categories);
    points += 2.0 * in_words(&lower(&skill.description), term);
    let hint = skill.hint.as_deref().map(lower).unwrap_or_default();
    points + if hint.contains(&term.text) { 1.5 } else { 0.0 }
}

/// None where fewer than half of the terms are found.
fn score(skill: &Skill, terms: &[Term]) -> Option<f64> {
    let points = terms.iter().map(|term| points(skill, term));
    let found: Vec<f64> = points.filter(|points| *points > 0.0).collect();
    let share = found.len() as f64 / terms.len() as f64;
    (!found.is_empty() && share >= 0.5).then(|| found.iter().sum::<f64>() * share)
}

fn terms(query: &str) -> Vec<Term> {
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
    let term = |text: String| Term {
        fuzzy: text.chars().count() >= 4,
        text,
    };
    chosen.into_iter().take(MOST_TERMS).map(term).collect()
}

/// 1 where the text contains the term, less where one of its words resembles it.
fn in_words(text: &str, term: &Term) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_match_comes_first() {
        let skill = |name: &str, more: &str| {
            let toml = format!("[skill]\nname = '{name}'\n{more}");
            Arc::new(Skill::parse(name, None, Some(&toml)).unwrap())
        };
        let skills = [
            skill("market-news", "description = 'Headlines about stocks'"),
            skill("stocks", "tools = ['market:quote']"),
            skill("weather", "keywords = ['forecast']"),
        ];
        let names = |query: &str| -> Vec<String> {
            let found = search(skills.iter(), query);
            found.iter().map(|skill| skill.name.clone()).collect()
        };
        assert_eq!(names("stocks"), ["stocks", "market-news"]);
        assert_eq!(names("quote"), ["stocks"]);
        assert_eq!(names("forecsat"), ["weather"]);
        assert!(names("mars").is_empty());
    }
}
