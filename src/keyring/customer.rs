//! Which texts are ids of customers, and names of their credentials.

/// Bytes of the longest id and of the longest name. Longer ones are mistakes, or made to fill
/// tables and logs.
pub const LONGEST: usize = 256;

/// Why this is no id of a customer. `<name>@<customer>` has to have one reading, and ids stand in
/// logs, tables and lists: so no `@`, no slashes, nothing that isn't printed, no blank at an end.
pub fn fault_of_id(id: &str) -> Option<&'static str> {
    match () {
        () if id.is_empty() => Some("is empty"),
        () if id.len() > LONGEST => Some("is longer than 256 bytes"),
        () if id.contains(['@', '/', '\\']) => Some("has an '@', a '/' or a '\\' in it"),
        () if id.chars().any(is_unprinted) => Some("has a character in it that isn't printed"),
        () if id.trim() != id => Some("has a blank at an end"),
        () => None,
    }
}

/// For command lines.
pub fn parse_id(text: &str) -> Result<String, String> {
    match fault_of_id(text) {
        Some(fault) => Err(format!("a customer's id that {fault}")),
        None => Ok(text.to_owned()),
    }
}

/// Why this is no name of a credential in the database.
pub fn fault_of_name(name: &str) -> Option<&'static str> {
    match () {
        () if name.is_empty() => Some("is empty"),
        () if name.len() > LONGEST => Some("is longer than 256 bytes"),
        () if name.contains('@') => Some("has an '@' in it; a customer is named by --customer"),
        () if name.chars().any(is_unprinted) => Some("has a character in it that isn't printed"),
        () if name.trim() != name => Some("has a blank at an end"),
        () => None,
    }
}

/// Control characters, line separators, and marks that turn the direction of text around or take no
/// room: two ids that look the same would be two customers.
fn is_unprinted(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn customer_id_with_two_readings_or_unprinted_characters_is_refused() {
        let long = "x".repeat(LONGEST + 1);
        for bad in [
            "",
            "a@b",
            "@",
            "a/b",
            "..\\x",
            "a\nb",
            "a\0",
            "a\u{1b}[2J",
            " a",
            "a ",
            "a\u{202e}b",
            "a\u{200b}",
            &long,
        ] {
            assert!(fault_of_id(bad).is_some(), "{bad:?}");
        }
        for good in [
            "cust_alpha",
            "acme.eu:7",
            "Acme Inc",
            "кампания",
            &long[1..],
        ] {
            assert_eq!(fault_of_id(good), None, "{good:?}");
        }
        assert!(fault_of_name("key@acme").is_some() && fault_of_name("").is_some());
        assert_eq!(fault_of_name("github_token"), None);
    }
}
