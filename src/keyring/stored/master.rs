//! Master keys: `ATI_MASTER_KEY`, and others as `ATI_MASTER_KEY_<ID>`.

use base64::Engine as _;
use base64::engine::general_purpose::GeneralPurpose;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use hmac::Mac as _;
use zeroize::Zeroizing;

use crate::error::Problem;
use crate::keyring::keyed;
use crate::keyring::secret::Secret;

/// The variable with the key in use. With an underscore and an id behind it: a further key.
pub const VARIABLE: &str = "ATI_MASTER_KEY";
const PREFIX: &str = "ATI_MASTER_KEY_";
/// The variable that names the id of the key in use.
const ACTIVE: &str = "ATI_MASTER_KEY_ACTIVE";
/// The key in use where there are several and none is named.
const FIRST: &str = "m1";
const KEY: usize = 32;

/// A key that the keys of credentials are encrypted with.
#[derive(Debug, Clone)]
pub struct MasterKey {
    /// Derived from the key itself: a row is found by it under whichever variable the key is.
    id: String,
    variable: String,
    key: Secret,
}

impl MasterKey {
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The variable that it was read from.
    pub fn variable(&self) -> &str {
        &self.variable
    }

    pub(super) fn expose(&self) -> &[u8] {
        self.key.expose()
    }
}

/// The master keys of this process. New credentials are encrypted with the first.
#[derive(Debug, Clone, Default)]
pub struct MasterKeys(Vec<MasterKey>);

impl MasterKeys {
    pub fn is_variable(name: &str) -> bool {
        name == VARIABLE || name.starts_with(PREFIX)
    }

    /// Reads the variables whose names are [`MasterKeys::is_variable`]. A value of None isn't text.
    pub fn from_variables(
        variables: impl Iterator<Item = (String, Option<Zeroizing<String>>)>,
    ) -> Result<Self, Vec<Problem>> {
        let (mut keys, mut problems) = (Vec::new(), Vec::new());
        let mut wanted = None;
        for (name, value) in variables {
            let problem = |message: &str| Problem::new(message).key(&name);
            let Some(value) = value else {
                problems.push(problem("not valid text"));
                continue;
            };
            let text = value.trim();
            if text.is_empty() {
                continue;
            }
            if name == ACTIVE {
                wanted = Some(text.to_owned());
                continue;
            }
            match parse(text) {
                Some(key) => keys.push(MasterKey {
                    id: id_of(key.expose()),
                    variable: name,
                    key,
                }),
                None => problems.push(problem(
                    "expected base64 of 32 bytes (openssl rand -base64 32 makes one)",
                )),
            }
        }
        // Variables come in no order.
        keys.sort_by(|a, b| a.variable.cmp(&b.variable));
        if problems.is_empty()
            && let Err(problem) = lead(&mut keys, wanted.as_deref())
        {
            problems.push(problem);
        }
        match problems.is_empty() {
            true => Ok(MasterKeys(keys)),
            false => Err(problems),
        }
    }

    /// The key that new credentials are encrypted with.
    pub fn active(&self) -> Option<&MasterKey> {
        self.0.first()
    }

    pub fn find(&self, id: &str) -> Option<&MasterKey> {
        self.0.iter().find(|key| key.id == id)
    }

    pub fn all(&self) -> &[MasterKey] {
        &self.0
    }
}

/// Moves the key in use to the front: the one that is named, else that of the variable without an
/// id, else the only one, else that of the id `m1`.
fn lead(keys: &mut [MasterKey], wanted: Option<&str>) -> Result<(), Problem> {
    let is = |key: &MasterKey, id: &str| {
        let own = key.variable.strip_prefix(PREFIX);
        own.is_some_and(|own| own.eq_ignore_ascii_case(id))
    };
    let only = |id: &str| {
        let mut found = (0..).zip(keys.iter()).filter(|(_, key)| is(key, id));
        let (first, key) = found.next()?;
        // Two variables whose ids differ in case only may hold one key, not two.
        found.all(|(_, other)| other.id == key.id).then_some(first)
    };
    let place = match wanted {
        Some(id) => only(id).ok_or_else(|| {
            Problem::new(format!("there is no key {PREFIX}{id}, or more than one")).key(ACTIVE)
        })?,
        None if keys.is_empty() => return Ok(()),
        None => match keys.iter().position(|key| key.variable == VARIABLE) {
            Some(place) => place,
            None if keys.len() == 1 => 0,
            None => only(FIRST).ok_or_else(|| {
                Problem::new(format!(
                    "there are several master keys, and neither {VARIABLE} nor {PREFIX}{FIRST} is \
                     among them: name the id of the one in use"
                ))
                .key(ACTIVE)
            })?,
        },
    };
    keys[..=place].rotate_right(1);
    Ok(())
}

/// Both alphabets of base64, with padding or without: generators differ.
fn parse(text: &str) -> Option<Secret> {
    const LAX: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = match text.contains(['-', '_']) {
        true => &base64::alphabet::URL_SAFE,
        false => &base64::alphabet::STANDARD,
    };
    let mut bytes = Zeroizing::new([0u8; KEY + 4]);
    let engine = GeneralPurpose::new(alphabet, LAX);
    let written = engine.decode_slice(text, &mut *bytes).ok()?;
    let key = bytes.get(..KEY).filter(|_| written == KEY)?;
    Secret::new(key).ok()
}

fn id_of(key: &[u8]) -> String {
    let mac = keyed(key).chain_update(b"ati master key id");
    hex::encode(&mac.finalize().into_bytes()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

    fn read(variables: &[(&str, &str)]) -> Result<Vec<String>, Vec<Problem>> {
        let variables = variables.iter().map(|(name, value)| {
            (
                (*name).to_owned(),
                Some(Zeroizing::new((*value).to_owned())),
            )
        });
        let keys = MasterKeys::from_variables(variables)?;
        Ok(keys.0.into_iter().map(|key| key.variable).collect())
    }

    #[test]
    fn key_in_use_is_the_named_one_then_the_plain_one_then_m1() {
        let [a, b, c] = [1u8, 2, 3].map(|byte| STANDARD.encode([byte; 32]));
        let plain = ("ATI_MASTER_KEY", a.as_str());
        let one = ("ATI_MASTER_KEY_m1", b.as_str());
        let two = ("ATI_MASTER_KEY_M2", c.as_str());
        let first = |variables: &[(&str, &str)]| read(variables).unwrap().first().cloned();
        assert_eq!(first(&[]), None);
        assert_eq!(first(&[("ATI_MASTER_KEY", "  ")]), None);
        assert_eq!(first(&[two, one, plain]).unwrap(), plain.0);
        assert_eq!(first(&[two]).unwrap(), two.0);
        assert_eq!(first(&[two, one]).unwrap(), one.0);
        let active = ("ATI_MASTER_KEY_ACTIVE", "m2");
        assert_eq!(first(&[active, plain, one, two]).unwrap(), two.0);
        assert!(read(&[active, plain, one]).is_err());
        assert!(read(&[two, ("ATI_MASTER_KEY_m3", &a)]).is_err());
        assert!(read(&[active, two, ("ATI_MASTER_KEY_m2", &a)]).is_err());
        assert!(read(&[active, two, ("ATI_MASTER_KEY_m2", &c)]).is_ok());
    }

    #[test]
    fn key_is_read_in_every_form_of_base64_and_in_no_other() {
        let bytes = [0xfb_u8; 32];
        let forms = [
            STANDARD.encode(bytes),
            STANDARD_NO_PAD.encode(bytes),
            URL_SAFE.encode(bytes),
            format!(" {}\n", URL_SAFE_NO_PAD.encode(bytes)),
        ];
        for form in &forms {
            assert!(read(&[("ATI_MASTER_KEY", form)]).is_ok(), "{form}");
        }
        let [short, long] = [STANDARD.encode([1; 31]), STANDARD.encode([1; 33])];
        for bad in ["!?", "not base64 at all!", &"a".repeat(64), &short, &long] {
            let problems = read(&[("ATI_MASTER_KEY", bad)]).unwrap_err();
            let text = format!("{problems:?}");
            assert!(
                text.contains("ATI_MASTER_KEY") && !text.contains(bad),
                "{text}"
            );
        }
    }

    #[test]
    fn id_of_a_key_does_not_depend_on_its_variable() {
        let text = STANDARD.encode([7; 32]);
        let id = |name: &str| {
            let value = Some(Zeroizing::new(text.clone()));
            let keys = MasterKeys::from_variables(std::iter::once((name.to_owned(), value)));
            keys.unwrap().active().unwrap().id().to_owned()
        };
        assert_eq!(id("ATI_MASTER_KEY"), id("ATI_MASTER_KEY_OLD"));
        assert_eq!(id("ATI_MASTER_KEY").len(), 16);
    }
}
