//! The names of tools that a mistyped name most likely means.

/// Names that are suggested.
const MOST: usize = 10;
/// How alike two names must be, from 0 to 1.
const ALIKE: f64 = 0.8;
/// Characters of a name that are compared.
const LONGEST: usize = 128;

/// The nearest of `known`, nearest first. The part after the provider's name may be all that was
/// written, and the provider's name may be what is wrong. Tools of a provider that was named
/// exactly, alone or before a colon, count even where nothing else is alike.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let name = crate::text::clip_chars(name, LONGEST).to_lowercase();
    let (provider, own) = parts(&name);
    let mut found: Vec<(f64, &str)> = known
        .filter_map(|candidate| {
            let other = candidate.to_lowercase();
            let (other_provider, other_own) = parts(&other);
            let mut alike = strsim::jaro_winkler(own, other_own);
            if let (Some(provider), Some(other)) = (provider, other_provider) {
                // Both halves have to be alike: every name of a provider begins in the same way.
                alike = alike.min(strsim::jaro_winkler(provider, other));
            }
            let same_provider = other_provider.is_some_and(|it| it == provider.unwrap_or(&name));
            (alike >= ALIKE || same_provider).then_some((alike, candidate))
        })
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(MOST);
    found.into_iter().map(|(_, name)| name).collect()
}

/// The line that an error ends with, or nothing.
pub fn suggestion<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let found = nearest(name, known);
    if found.is_empty() {
        return String::new();
    }
    let lines: String = found.iter().map(|tool| format!("\n  - {tool}")).collect();
    format!(" Did you mean one of:{lines}")
}

/// The provider's name, where there is one, and the tool's own.
fn parts(name: &str) -> (Option<&str>, &str) {
    match name.split_once(':') {
        Some((provider, own)) => (Some(provider), own),
        None => (None, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 7] = [
        "billing:createInvoice",
        "billing:getInvoice",
        "billing:listInvoices",
        "billing:wipe",
        "shop:find",
        "shop:list",
        "web_search",
    ];

    fn meant(name: &str) -> Vec<&'static str> {
        nearest(name, KNOWN.into_iter())
    }

    #[test]
    fn nearest_names_come_first() {
        assert_eq!(meant("biling:listInvoices")[0], "billing:listInvoices");
        assert_eq!(meant("listInvoices")[0], "billing:listInvoices");
        assert_eq!(meant("billing:listInvoice")[0], "billing:listInvoices");
        assert_eq!(meant("LISTINVOICES")[0], "billing:listInvoices");
        assert_eq!(meant("web_serch"), ["web_search"]);
        assert_eq!(meant("zzz"), Vec::<&str>::new());
        // Nothing is alike, but the provider is right.
        assert_eq!(meant("shop:zzz"), ["shop:find", "shop:list"]);
        assert_eq!(meant("shop"), ["shop:find", "shop:list"]);
    }

    #[test]
    fn few_names_are_suggested_of_many() {
        let many: Vec<String> = (0..100).map(|n| format!("p:tool{n}")).collect();
        let text = suggestion("p:tool4", many.iter().map(String::as_str));
        assert!(
            text.starts_with(" Did you mean one of:\n  - p:tool4\n"),
            "{text}"
        );
        assert_eq!(text.lines().count(), MOST + 1);
        assert_eq!(suggestion("zzz", std::iter::empty()), "");
    }
}
