use std::path::Path;

use super::value::{Plain, RawSection, RelativePath, raw_section};
use crate::config::{Environment, JwtSettings, KeySource, Section};
use crate::error::Problem;

raw_section! {
    /// `[jwt]`.
    RawJwt {
        public_key: RelativePath,
        secret_file: RelativePath,
        issuer: Plain<String>,
        audiences: Plain<Vec<String>>,
    }
}

pub(super) fn read(root: &mut Section<'_>, conf: &Path) -> RawJwt {
    let mut section = root.section("jwt");
    let raw = RawJwt::take(&mut section, conf);
    if raw.public_key.is_some() && raw.secret_file.is_some() {
        section.problem("secret_file", "public_key is set too; use one of the two");
    }
    if raw.audiences.as_ref().is_some_and(Vec::is_empty) {
        section.problem("audiences", "an empty list would accept no token");
    }
    section.finish();
    raw
}

impl RawJwt {
    /// The environment's key wins over the conf file's, and that one over config.toml's.
    pub(in crate::config) fn resolve(
        self,
        env: &Environment,
        conf: Option<&Path>,
        of_config_toml: Option<KeySource>,
        warnings: &mut Vec<Problem>,
    ) -> Option<JwtSettings> {
        let of_conf = self.key(conf);
        let expect = env.expectations(self.issuer, self.audiences);
        let key = env.jwt_key().or(of_conf).or(of_config_toml);
        if key.is_none() && (expect.issuer.is_some() || env.private_key || env.audiences.is_some())
        {
            warnings.push(Problem::new(
                "JWT settings are there, but no key to verify with: every caller is let in \
                 (ATI_JWT_PUBLIC_KEY or ATI_JWT_SECRET)",
            ));
        }
        key.map(|key| JwtSettings { key, expect })
    }

    fn key(&self, conf: Option<&Path>) -> Option<KeySource> {
        let file = conf.map(Path::to_path_buf);
        let public_key = self.public_key.clone();
        let secret_file = self.secret_file.clone();
        public_key
            .map(|path| KeySource::public_key("jwt.public_key", file.clone(), path))
            .or_else(|| {
                secret_file.map(|path| KeySource::secret_file("jwt.secret_file", file, path))
            })
    }
}
