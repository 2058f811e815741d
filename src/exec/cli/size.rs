//! What the system allows as the words and the environment of a program.

use rustix::process::{Resource, getrlimit};

use super::CliError;

/// Bytes of one word or variable; the kernel's MAX_ARG_STRLEN, with the zero byte at the end.
const LONGEST_WORD: usize = 128 << 10;
/// What the kernel never allows more than, however big the stack may be.
const MOST: u64 = 6 << 20;
/// What it always allows.
const LEAST: u64 = 128 << 10;
/// A pointer to each word and variable counts too.
const POINTER: usize = 8;
/// For the supervisor's own words, and for names that the kernel adds.
const RESERVE: usize = 16 << 10;

/// Refuses what the system would refuse, with the limit in the text.
pub fn check(words: &[String], variables: impl Iterator<Item = usize>) -> Result<(), CliError> {
    let long = words.iter().position(|word| word.len() >= LONGEST_WORD);
    if let Some(place) = long {
        return Err(CliError::TooLong(format!(
            "word {} has {} bytes; one word of a program has at most {} (128 KiB)",
            place + 1,
            words[place].len(),
            LONGEST_WORD - 1
        )));
    }
    if let Some(place) = words.iter().position(|word| word.contains('\0')) {
        return Err(CliError::TooLong(format!(
            "word {} has a NUL byte, which no word of a program can have",
            place + 1
        )));
    }
    let words = words.iter().map(String::len).chain(variables);
    let total: usize = words.map(|length| length + 1 + POINTER).sum();
    let most = most();
    if total + RESERVE > most {
        return Err(too_much(total, most));
    }
    Ok(())
}

fn too_much(total: usize, most: usize) -> CliError {
    CliError::TooLong(format!(
        "the words and variables of the program take {total} bytes; this system allows {} (ARG_MAX)",
        most - RESERVE
    ))
}

/// ARG_MAX of Linux: a quarter of the stack, within limits.
fn most() -> usize {
    let stack = getrlimit(Resource::Stack).current.unwrap_or(u64::MAX);
    usize::try_from((stack / 4).clamp(LEAST, MOST)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_would_refuse_is_refused_with_its_limit() {
        let none = || std::iter::empty();
        let word = |length: usize| "x".repeat(length);
        assert_eq!(check(&[word(LONGEST_WORD - 1)], none()), Ok(()));
        let long = check(&[word(1), word(1 << 20)], none()).unwrap_err();
        assert_eq!(
            long.to_string(),
            "Invalid arguments: word 2 has 1048576 bytes; one word of a program has at most 131071 \
             (128 KiB)"
        );
        assert_eq!(check(&vec![word(1); 100_000], none()), Ok(()));
        let many = check(&vec![word(1000); 100_000], none()).unwrap_err();
        assert!(many.to_string().contains("(ARG_MAX)"), "{many}");
        let variables = check(&[], std::iter::repeat_n(1 << 20, 8)).unwrap_err();
        assert!(variables.to_string().contains("(ARG_MAX)"), "{variables}");
    }
}
