//! Search over skills: the same terms as the search over tools.

use std::sync::Arc;

use super::document::Skill;
use crate::catalog::search::{Term, in_words, ranked, terms};

/// The skills that match, best first; ties stay in their order.
pub fn search<'a>(
    skills: impl Iterator<Item = &'a Arc<Skill>>,
    query: &str,
) -> Vec<&'a Arc<Skill>> {
    let terms = terms(query);
    ranked(skills, &terms, |skill, term| points(skill, term))
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
