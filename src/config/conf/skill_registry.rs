use std::time::Duration;

use super::value::{Plain, Positive, PositiveSeconds, raw_section};
use crate::config::environment::SkillRegistryVariables;

raw_section! {
    /// `[skill_registry]`.
    RawSkillRegistry {
        url: Plain<String>,
        index_objects: Plain<Vec<String>>,
        refresh_seconds: PositiveSeconds,
        cache_bytes: Positive,
    }
}

/// The remote catalogue of skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillRegistrySettings {
    /// `gcs://bucket`, `proxy` and others. None: there is no catalogue.
    pub url: Option<String>,
    /// Where its index may be, the first that can be used wins.
    pub index_objects: Vec<String>,
    /// The proxy of a registry that is `proxy`.
    pub proxy: Option<String>,
    /// What is younger is served without asking the registry.
    pub refresh: Duration,
    /// The memory that files of skills may take.
    pub cache_bytes: usize,
}

impl Default for SkillRegistrySettings {
    fn default() -> Self {
        SkillRegistrySettings {
            url: None,
            index_objects: [
                "_skillati/catalog.v1.json",
                "_skillati/catalog.json",
                "skillati-catalog.json",
            ]
            .map(str::to_owned)
            .to_vec(),
            proxy: None,
            refresh: Duration::from_secs(60),
            cache_bytes: 64 << 20,
        }
    }
}

impl SkillRegistrySettings {
    /// With what the environment says, which wins over the conf file.
    pub fn with_environment(mut self, variables: &SkillRegistryVariables) -> Self {
        let text = |text: &str| text.trim().to_owned();
        self.url = variables.url.as_deref().map(text).or(self.url);
        self.proxy = variables.proxy.as_deref().map(text);
        let listed = variables.index.iter().flat_map(|csv| csv.split(','));
        let listed: Vec<String> = listed.map(text).filter(|one| !one.is_empty()).collect();
        if !listed.is_empty() {
            self.index_objects = listed;
        }
        self
    }
}

impl RawSkillRegistry {
    pub(in crate::config) fn resolve(
        self,
        variables: &SkillRegistryVariables,
    ) -> SkillRegistrySettings {
        let default = SkillRegistrySettings::default();
        let settings = SkillRegistrySettings {
            url: self.url.filter(|url| !url.trim().is_empty()),
            index_objects: self.index_objects.unwrap_or(default.index_objects),
            proxy: None,
            refresh: self.refresh_seconds.unwrap_or(default.refresh),
            cache_bytes: self.cache_bytes.unwrap_or(default.cache_bytes),
        };
        settings.with_environment(variables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_wins_over_the_conf_file_and_lists_index_objects_with_commas() {
        let raw = || RawSkillRegistry {
            url: Some("gcs://of-conf".into()),
            ..RawSkillRegistry::default()
        };
        let mut variables = SkillRegistryVariables::default();
        let settings = raw().resolve(&variables);
        assert_eq!(settings.url.as_deref(), Some("gcs://of-conf"));
        assert_eq!(settings.index_objects.len(), 3);
        variables.url = Some(" gcs://of-env ".into());
        variables.index = Some("a.json, ,b.json".into());
        let settings = raw().resolve(&variables);
        assert_eq!(settings.url.as_deref(), Some("gcs://of-env"));
        assert_eq!(settings.index_objects, ["a.json", "b.json"]);
    }
}
