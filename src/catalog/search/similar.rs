//! Words of the index that a word of a query resembles: it is their beginning, or has a typo.

use super::text::LONGEST_WORD;
use super::weights;

/// Letters of a word that may be the beginning of another.
const SHORTEST_BEGINNING: usize = 3;
/// Letters of a word that may have one typo, or two.
const ONE_TYPO: usize = 4;
const MORE_TYPOS: usize = 8;

struct Word {
    /// Which letters it has.
    letters: u32,
    term: u32,
    text: Box<[u8]>,
}

/// All words of a segment, the shorter ones first.
#[derive(Default)]
pub struct Vocabulary {
    words: Vec<Word>,
}

pub struct Similar {
    pub term: u32,
    pub factor: f32,
}

impl Vocabulary {
    /// A word that wasn't added before.
    pub fn add(&mut self, text: &str, term: u32) {
        self.words.push(Word {
            letters: letters(text.as_bytes()),
            term,
            text: text.as_bytes().into(),
        });
    }

    pub fn finish(&mut self) {
        self.words.sort_by(|a, b| {
            let by_length = a.text.len().cmp(&b.text.len());
            by_length.then_with(|| a.text.cmp(&b.text))
        });
    }

    /// What resembles a word that the index doesn't have.
    pub fn similar(&self, word: &str, mut each: impl FnMut(Similar)) {
        let word = word.as_bytes();
        let typos = match word.len() {
            ..ONE_TYPO => 0,
            ONE_TYPO..MORE_TYPOS => 1,
            _ => 2,
        };
        let letters = letters(word);
        let from = word.len().saturating_sub(typos);
        let first = self.words.partition_point(|known| known.text.len() < from);
        for known in &self.words[first..] {
            let longer = known.text.len().saturating_sub(word.len());
            if longer > 0 && word.len() >= SHORTEST_BEGINNING && known.text.starts_with(word) {
                each(Similar {
                    term: known.term,
                    factor: weights::BEGINNING,
                });
            } else if longer <= typos
                // Each typo changes two letters of the set at most.
                && (known.letters ^ letters).count_ones() as usize <= 2 * typos
                && let Some(typos) = distance(word, &known.text, typos)
            {
                each(Similar {
                    term: known.term,
                    factor: if typos <= 1 {
                        weights::TYPO
                    } else {
                        weights::TWO_TYPOS
                    },
                });
            }
        }
    }
}

fn letters(word: &[u8]) -> u32 {
    word.iter().fold(0, |set, byte| set | 1 << (byte % 32))
}

/// Letters that were added, left out, replaced, or swapped with their neighbour. None where there
/// are more than `most`, which is 2 at most.
fn distance(a: &[u8], b: &[u8], most: usize) -> Option<usize> {
    let (n, m) = (a.len(), b.len());
    if n.abs_diff(m) > most || m > 2 * LONGEST_WORD {
        return None;
    }
    // Three rows of the usual table.
    let mut rows = [[0_u8; 2 * LONGEST_WORD + 1]; 3];
    for (at, cell) in rows[0].iter_mut().enumerate().take(m + 1) {
        *cell = at as u8;
    }
    for i in 1..=n {
        let (now, last, before) = (i % 3, (i + 2) % 3, (i + 1) % 3);
        rows[now][0] = i as u8;
        let mut least = i as u8;
        for j in 1..=m {
            let other = u8::from(a[i - 1] != b[j - 1]);
            let mut cell = (rows[last][j] + 1)
                .min(rows[now][j - 1] + 1)
                .min(rows[last][j - 1] + other);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cell = cell.min(rows[before][j - 2] + 1);
            }
            rows[now][j] = cell;
            least = least.min(cell);
        }
        if usize::from(least) > most {
            return None;
        }
    }
    let typos = usize::from(rows[n % 3][m]);
    (typos <= most).then_some(typos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_counted_up_to_a_limit() {
        let count = |a: &str, b: &str, most| distance(a.as_bytes(), b.as_bytes(), most);
        assert_eq!(count("weather", "wether", 1), Some(1));
        assert_eq!(count("weather", "weahter", 1), Some(1));
        assert_eq!(count("weather", "weather", 1), Some(0));
        assert_eq!(count("invoice", "invioces", 1), None);
        assert_eq!(count("invoice", "invioces", 2), Some(2));
        assert_eq!(count("abc", "abcdef", 2), None);
    }

    #[test]
    fn similar_words_are_found_by_beginning_and_typo() {
        let mut vocabulary = Vocabulary::default();
        for (term, word) in ["weather", "wealth", "we", "configur", "stock"]
            .into_iter()
            .enumerate()
        {
            vocabulary.add(word, term as u32);
        }
        vocabulary.finish();
        let found = |word: &str| {
            let mut terms = Vec::new();
            vocabulary.similar(word, |similar| terms.push(similar.term));
            terms
        };
        assert_eq!(found("wether"), [0]);
        assert_eq!(found("config"), [3]);
        assert_eq!(found("weal"), [1]);
        assert!(found("zzz").is_empty() && found("wx").is_empty());
    }
}
