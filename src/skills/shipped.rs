//! Skills that come with ati: `ati skill install <name>` writes them.

/// A skill that is part of the program.
pub struct Shipped {
    pub name: &'static str,
    /// By their paths in the skill's folder.
    pub files: &'static [(&'static str, &'static str)],
}

pub const SHIPPED: &[Shipped] = &[Shipped {
    name: "google-workspace",
    files: &[
        (
            "SKILL.md",
            include_str!("../../manifests/skills/google-workspace/SKILL.md"),
        ),
        (
            "skill.toml",
            include_str!("../../manifests/skills/google-workspace/skill.toml"),
        ),
    ],
}];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skills::{Format, Skill};

    #[test]
    fn shipped_skills_are_skills() {
        for shipped in SHIPPED {
            let file = |name| {
                let mut files = shipped.files.iter();
                files.find(|(path, _)| *path == name).map(|(_, text)| *text)
            };
            let document = file("SKILL.md").map(str::as_bytes);
            let skill = Skill::parse("x", document, file("skill.toml")).unwrap();
            assert_eq!(
                (skill.name.as_str(), skill.format),
                (shipped.name, Format::Anthropic)
            );
            assert!(!skill.description.is_empty());
        }
    }
}
