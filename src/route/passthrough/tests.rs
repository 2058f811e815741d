//! A denied path stays denied, however a caller writes it.

use super::*;
use crate::route::Table;

const DENIED: [&str; 5] = [
    "/admin",
    "/admin/users/1",
    "/private/x",
    "/deep/private/x/y",
    "/a/b.php",
];

fn table() -> Table {
    Table::from_text(
        "base_url = 'http://127.0.0.1:1'\npath_prefix = '/svc'\n\
         deny_paths = ['/admin', '*/private/*', '/*.php']",
    )
}

fn ask(table: &Table, received: &str) -> Result<Rewritten, Refusal> {
    let path = path::normalise(received)?;
    match table.find(None, &path) {
        super::super::Match::Route(route) => route.rewrite(received, &path),
        _ => Err(Refusal::NotFound { passthrough: true }),
    }
}

/// Numbers that are the same in every run (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// The path in one of the ways that some server reads as this path.
fn spell(path: &str, numbers: &mut Numbers) -> String {
    let mut spelled = String::from("/svc");
    for segment in path.split('/').skip(1) {
        spelled += match numbers.below(4) {
            0 => numbers.one(&["//", "///", "/%2f", "/%2F/", "/%252f"]),
            1 => numbers.one(&["/;/", "/;x=1/", "/%3b/", "/%3Bx/", "/%253bx/", "/;a;b/;c/"]),
            _ => "/",
        };
        for character in segment.chars() {
            let byte = character as u8;
            spelled += &match numbers.below(6) {
                0 => format!("%{byte:02x}"),
                1 => format!("%{byte:02X}"),
                2 => format!("%25{byte:02x}"),
                _ => character.to_string(),
            };
        }
        if numbers.chance(4) {
            spelled += numbers.one(&[";", ";x", ";x=1;y", "%3b", "%3Bx=1", "%253b"]);
        }
    }
    if numbers.chance(4) {
        spelled += numbers.one(&["/", "//", "/;x", "/more", "%2f"]);
    }
    spelled
}

#[test]
fn denied_path_reaches_no_upstream_however_it_is_spelled() {
    let table = table();
    let mut numbers = Numbers(7);
    let mut denied = 0;
    for case in 0..20_000 {
        let path = DENIED[numbers.below(DENIED.len())];
        let received = spell(path, &mut numbers);
        match ask(&table, &received) {
            Ok(forwarded) => panic!("case {case}: {received} went on as {}", forwarded.path),
            Err(Refusal::PathDenied) => denied += 1,
            Err(refusal) => assert_eq!(refusal.status(), 400, "case {case}: {received}"),
        }
    }
    // The others were refused before the rules were asked.
    assert!(denied > 15_000, "{denied}");
}

#[test]
fn path_that_is_not_denied_goes_on_in_its_own_spelling() {
    let table = table();
    for path in [
        "/",
        "/administrator",
        "/a;admin",
        "/adm%69nistrator",
        "/x;y=1/z",
        "/100%25",
        "/privat/x",
    ] {
        let forwarded = ask(&table, &format!("/svc{path}")).unwrap();
        assert_eq!(forwarded.path, path);
    }
}
