use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::percent_encode;
use url::form_urlencoded;

use super::escapes::Escaped;
use super::*;
use crate::credential::UNRESERVED;

/// xorshift64: the same cases in every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    pub(super) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(super) fn text(&mut self, alphabet: &str, len: usize) -> String {
        let characters: Vec<char> = alphabet.chars().collect();
        (0..len)
            .map(|_| characters[self.below(characters.len())])
            .collect()
    }

    /// A key of at least 8 bytes.
    pub(super) fn key(&mut self) -> Vec<u8> {
        const ALPHABETS: [&str; 6] = [
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
            "ab",
            "aZ09-_/+=.~",
            "aB1\"\\/&<>'+%`?#:@ ",
            "ü€𝄞\u{7f}\u{1}ab\t\"",
            "abcdefgh\n",
        ];
        let len = 8 + self.below(40);
        let alphabet = ALPHABETS[self.below(ALPHABETS.len())];
        let mut key = self.text(alphabet, len).into_bytes();
        if self.below(20) == 0 {
            key[3] = 0xff;
        }
        key
    }
}

pub(super) fn patterns(keys: &[&[u8]]) -> Arc<RedactionPatterns> {
    Arc::new(RedactionPatterns::new(keys.iter().copied()))
}

pub(super) fn whole(patterns: &RedactionPatterns, text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    patterns.redact(&mut text);
    text
}

fn streamed(patterns: &Arc<RedactionPatterns>, text: &[u8], random: &mut Random) -> Vec<u8> {
    // Every chunk of a long text costs a search of what was kept back.
    let longest = [1, 3, 20, 100][random.below(4)].max(text.len() / 30);
    in_chunks(patterns, text, longest, random)
}

pub(super) fn in_chunks(
    patterns: &Arc<RedactionPatterns>,
    text: &[u8],
    longest: usize,
    random: &mut Random,
) -> Vec<u8> {
    let mut redactor = Redactor::new(patterns.clone());
    let mut clean = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(random.below(longest + 1).min(rest.len()));
        clean.extend(redactor.push(chunk));
        rest = after;
    }
    clean.extend(redactor.finish());
    clean
}

/// A JSON string as different libraries write it; `escape` says what they escape without need.
fn json(key: &[u8], upper: bool, mut escape: impl FnMut(char) -> bool) -> Vec<u8> {
    let mut out = String::new();
    for c in String::from_utf8_lossy(key).chars() {
        match c {
            c if escape(c) || (c.is_control() && c != '\t' && c != '\n') => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out += &match upper {
                        true => format!("\\u{unit:04X}"),
                        false => format!("\\u{unit:04x}"),
                    };
                }
            }
            '"' | '\\' => out.extend(['\\', c]),
            '\t' => out += "\\t",
            '\n' => out += "\\n",
            c => out.push(c),
        }
    }
    out.into_bytes()
}

fn percent(key: &[u8], upper: bool, mut escape: impl FnMut(u8) -> bool) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in key {
        match escape(*byte) || *byte == b'%' {
            true if upper => out.extend(format!("%{byte:02X}").bytes()),
            true => out.extend(format!("%{byte:02x}").bytes()),
            false => out.push(*byte),
        }
    }
    out
}

/// Every encoding in which a key has to be found, as an encoder writes it.
fn encodings(key: &[u8], random: &mut Random) -> Vec<(&'static str, Vec<u8>)> {
    let cautious = |c: char| !c.is_ascii() || "\"&'+<>`".contains(c);
    let slashes = String::from_utf8(json(key, false, |_| false)).unwrap();
    let form: String = form_urlencoded::byte_serialize(key).collect();
    let plain_percent = percent_encode(key, UNRESERVED).to_string();
    let reserved = |byte: u8| !byte.is_ascii_alphanumeric() && !b"-._~/:!*'()".contains(&byte);
    let upper = random.coin();
    vec![
        ("plain", key.to_vec()),
        ("json", json(key, false, |_| false)),
        ("json slashes", slashes.replace('/', "\\/").into_bytes()),
        ("json ascii", json(key, false, |c| !c.is_ascii())),
        ("json ascii upper", json(key, true, |c| !c.is_ascii())),
        ("json cautious", json(key, false, cautious)),
        ("json cautious upper", json(key, true, cautious)),
        ("json all", json(key, upper, |_| true)),
        ("json some", json(key, upper, |_| random.coin())),
        ("percent", plain_percent.into_bytes()),
        ("percent lower", percent(key, false, reserved)),
        ("percent all", percent(key, true, |_| true)),
        ("percent all lower", percent(key, false, |_| true)),
        ("percent some", percent(key, upper, |_| random.coin())),
        ("form", form.into_bytes()),
        ("hex", hex::encode(key).into_bytes()),
        ("hex upper", hex::encode_upper(key).into_bytes()),
    ]
}

pub(super) fn contains(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

/// Text around a secret that contains beginnings and ends of it, and escapes of all kinds.
fn noise(key: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.below(8) {
        let at = random.below(key.len());
        match random.below(6) {
            0 => out.extend_from_slice(&key[..at]),
            1 => out.extend_from_slice(&key[at..]),
            2 => out.extend_from_slice(&json(&key[..at], random.coin(), |_| true)),
            3 => out.extend_from_slice(&percent(&key[..at], random.coin(), |_| true)),
            4 => out.extend(random.text("\\%u04aD8\"/+", 3).bytes()),
            _ => out.extend(random.text("abcxyz ,{}\"\n", 9).bytes()),
        }
    }
    out
}

#[test]
fn key_in_any_encoding_is_redacted_whole_and_in_any_chunks() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for case in 0..150 {
        let key = random.key();
        let patterns = patterns(&[&key]);
        for (name, encoded) in encodings(&key, &mut random) {
            let label = format!("{case} {name} {:?}", String::from_utf8_lossy(&key));
            // Neighbours that no key has, so that the exact result is known.
            let text = [b"{;|", &encoded[..], b"|;}"].concat();
            let clean = whole(&patterns, &text);
            assert_eq!(clean, b"{;|[REDACTED]|;}", "{label}");
            assert_eq!(streamed(&patterns, &text, &mut random), clean, "{label}");

            let text = [
                noise(&key, &mut random),
                encoded.clone(),
                noise(&key, &mut random),
            ]
            .concat();
            let clean = whole(&patterns, &text);
            assert!(!contains(&clean, &key), "{label}");
            assert!(!contains(&clean, &encoded), "{label}");
            assert_eq!(streamed(&patterns, &text, &mut random), clean, "{label}");
        }
    }
}

#[test]
fn key_in_base64_is_redacted_at_any_offset_and_in_any_chunks() {
    let mut random = Random(0xD1B5_4A32_D192_ED03);
    for case in 0..40 {
        let key = random.key();
        let patterns = patterns(&[&key]);
        for before in 0..6 {
            for after in 0..3 {
                let padded = [&vec![b'u'; before][..], &key, &vec![b'v'; after]].concat();
                let begin = (before * 8).div_ceil(6);
                let end = (before + key.len()) * 8 / 6;
                for encoded in [STANDARD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
                    let label = format!("{case} {before} {after} {encoded}");
                    let core = &encoded.as_bytes()[begin..end];
                    let in_json = encoded.replace('/', "\\/");
                    let in_query = percent(encoded.as_bytes(), random.coin(), |byte| {
                        b"+/=".contains(&byte)
                    });
                    for text in [encoded.as_bytes(), in_json.as_bytes(), &in_query] {
                        let text = [b" \"", text, b"\" "].concat();
                        let clean = whole(&patterns, &text);
                        assert!(contains(&clean, REPLACEMENT), "{label}");
                        assert!(!contains(&clean, core), "{label}");
                        assert_eq!(streamed(&patterns, &text, &mut random), clean, "{label}");
                    }
                }
            }
        }
    }
}

/// The leftmost-longest matches, searched for in the simplest way.
fn reference(keys: &[&[u8]], text: &[u8]) -> Vec<u8> {
    let encoded: Vec<_> = keys.iter().flat_map(|key| encodings::of(key)).collect();
    let spaces = encoded.iter().any(|pattern| pattern.contains(&b' '));
    let input = Escaped::new(text, spaces);
    let mut clean = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let mut end = at;
        for pattern in &encoded {
            let occurrence = input.compare(pattern, at);
            end = end.max(occurrence.until.unwrap_or(at));
        }
        if end == at {
            clean.push(text[at]);
            at += 1;
        } else {
            clean.extend_from_slice(REPLACEMENT);
            at = end;
        }
    }
    clean
}

#[test]
fn several_keys_that_overlap_are_redacted_leftmost_and_longest() {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    for case in 0..300 {
        let first = random.key();
        let mut second = first[random.below(4)..].to_vec();
        second.extend(random.key());
        let third = random.key();
        let keys: Vec<&[u8]> = [&first[..], &second, &third][..1 + random.below(3)].to_vec();
        // Added one after the other, as an attachment does it.
        let patterns = keys
            .iter()
            .fold(RedactionPatterns::default(), |patterns, key| {
                patterns.with([*key].into_iter())
            });
        let patterns = Arc::new(patterns);
        let mut text = Vec::new();
        for _ in 0..5 {
            let key = keys[random.below(keys.len())];
            text.extend(noise(key, &mut random));
            let mut all = encodings(key, &mut random);
            text.extend(all.swap_remove(random.below(all.len())).1);
        }
        let clean = whole(&patterns, &text);
        let label = format!("{case} {:?}", String::from_utf8_lossy(&text));
        assert_eq!(clean, reference(&keys, &text), "{label}");
        assert_eq!(streamed(&patterns, &text, &mut random), clean, "{label}");
    }
}

#[test]
fn redactor_keeps_back_less_than_the_longest_encoding() {
    let key = b"0123456789abcdef";
    let longest = 6 * STANDARD.encode(key).len();
    let mut redactor = Redactor::new(patterns(&[key]));
    let text = json(&key[..15], false, |_| true);
    for chunk in text.chunks(1).cycle().take(10_000) {
        redactor.push(chunk);
        assert!(redactor.kept_back.len() < longest);
    }
    let mut clean = Redactor::new(patterns(&[key]));
    assert_eq!(clean.push(b"nothing to hide"), b"nothing to hide");
    assert!(clean.finish().is_empty());
}

#[test]
fn text_without_a_secret_stays_as_it_is() {
    let redact = |keys: &[&[u8]], text: &str| {
        String::from_utf8(whole(&patterns(keys), text.as_bytes())).unwrap()
    };
    assert_eq!(redact(&[b"a long secret"], "nothing here"), "nothing here");
    assert_eq!(redact(&[b"short"], "short words stay"), "short words stay");
    assert_eq!(redact(&[], "x"), "x");
    assert_eq!(redact(&[b"a long secret"], ""), "");
    for broken in ["\\", "%", "%6", "\\u00", "\\ud83d\\u0041", "%zz\\q\\u00zz"] {
        assert_eq!(redact(&[b"a long secret"], broken), broken);
    }
}

#[test]
fn text_is_replaced_as_a_whole_where_patterns_are_unavailable() {
    let patterns =
        Arc::new(RedactionPatterns::unavailable().with([&b"a long secret"[..]].into_iter()));
    assert_eq!(whole(&patterns, b"any text"), REPLACEMENT);
    let mut random = Random(1);
    assert_eq!(streamed(&patterns, b"any text", &mut random), REPLACEMENT);
}

#[test]
fn secret_of_several_lines_is_redacted_line_by_line() {
    let key = b"-----BEGIN KEY-----\nMIGHAgEAMBMGByqGSM49\nAgEGCCqGSM49AwEHBG0w\n";
    let patterns = patterns(&[key]);
    assert_eq!(whole(&patterns, key), b"[REDACTED]");
    let quoted = whole(&patterns, b"line 2: MIGHAgEAMBMGByqGSM49\r\nline 3: ?");
    assert_eq!(quoted, b"line 2: [REDACTED]\r\nline 3: ?");
}

/// A secret that repeats itself, in a text that nearly repeats it, costs a comparison of the whole
/// secret at every byte.
#[test]
fn search_that_costs_too_much_shows_no_beginning_of_an_escaped_secret() {
    let backslashes = |count: usize| "\\".repeat(count);
    let secret = format!("planted-key{}:", backslashes(60));
    // The second one has more readings than are looked at.
    let escaped = secret.replace("ted", "%74ed");
    let costly = secret.replace('\\', &backslashes(16));
    let text = format!("one {escaped} two {costly}");
    let patterns = patterns(&[b"other-key", secret.as_bytes()]);
    let clean = whole(&patterns, text.as_bytes());
    assert!(contains(&clean, b"[REDACTED]"));
    assert!(
        !contains(&clean, b"plan"),
        "{}",
        String::from_utf8_lossy(&clean)
    );
}

#[test]
fn search_that_costs_too_much_redacts_the_rest() {
    let secret = vec![b'a'; 16_000];
    let mut near = vec![b'a'; 15_999];
    near.push(b'b');
    let patterns = Arc::new(RedactionPatterns::new([secret.as_slice()].into_iter()));
    let mut text = [b"before ".to_vec(), near.repeat(60)].concat();
    let length = text.len();
    let started = std::time::Instant::now();
    let mut redactor = Redactor::new(patterns.clone());
    let mut streamed: Vec<u8> = text
        .chunks(16 << 10)
        .flat_map(|chunk| redactor.push(chunk))
        .collect();
    streamed.extend(redactor.finish());
    patterns.redact(&mut text);
    // Without a limit this takes minutes in this build.
    assert!(started.elapsed() < std::time::Duration::from_secs(20));
    for clean in [text, streamed] {
        assert!(clean.starts_with(b"before ") && clean.len() < length / 2);
        assert!(clean.windows(10).any(|part| part == b"[REDACTED]"));
    }
}
