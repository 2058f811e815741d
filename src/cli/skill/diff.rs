//! The lines in which two texts differ, with a few equal ones around them.

/// Equal lines before and after a change.
const AROUND: usize = 3;
/// Lines of each text that are compared one by one; the rest of longer texts is shown as replaced.
const MOST_COMPARED: usize = 2000;

/// Lines that begin with ` `, `-` or `+`. Nothing for equal texts.
pub fn lines(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let begin = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - begin;
    let end = (0..most)
        .take_while(|at| old[old.len() - 1 - at] == new[new.len() - 1 - at])
        .count();
    let (middle_old, middle_new) = (&old[begin..old.len() - end], &new[begin..new.len() - end]);
    let mut all: Vec<(char, &str)> = old[..begin].iter().map(|line| (' ', *line)).collect();
    all.extend(compare(middle_old, middle_new));
    all.extend(old[old.len() - end..].iter().map(|line| (' ', *line)));
    shortened(&all)
}

/// By the longest common subsequence.
fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let replaced = || {
        let gone = old.iter().map(|line| ('-', *line));
        gone.chain(new.iter().map(|line| ('+', *line))).collect()
    };
    if old.len() > MOST_COMPARED || new.len() > MOST_COMPARED {
        return replaced();
    }
    let width = new.len() + 1;
    let mut common = vec![0u16; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = match old[i] == new[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut all) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            all.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len()
            || (i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            all.push(('-', old[i]));
            i += 1;
        } else {
            all.push(('+', new[j]));
            j += 1;
        }
    }
    all
}

/// Without equal lines that are far from a change.
fn shortened(all: &[(char, &str)]) -> Vec<String> {
    let mut near = vec![false; all.len()];
    for (at, _) in all.iter().enumerate().filter(|(_, (mark, _))| *mark != ' ') {
        let end = (at + AROUND + 1).min(all.len());
        near[at.saturating_sub(AROUND)..end].fill(true);
    }
    let mut shown = Vec::new();
    for (at, (mark, line)) in all.iter().enumerate() {
        if near[at] {
            if (at == 0 || !near[at - 1]) && at > 0 {
                shown.push("  ...".to_owned());
            }
            shown.push(format!("{mark} {line}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_stand_among_their_neighbours() {
        assert!(lines("a\nb\n", "a\nb\n").is_empty());
        assert_eq!(
            lines("a\nb\nc\n", "a\nB\nc\n"),
            ["  a", "- b", "+ B", "  c"]
        );
        assert_eq!(lines("", "a\n"), ["+ a"]);
        assert_eq!(lines("a\n", ""), ["- a"]);
        assert_eq!(lines("a\nb\n", "b\na\n"), ["- a", "  b", "+ a"]);
        let old: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let mut new = old.clone();
        new[10] = "x".to_owned();
        let shown = lines(&old.join("\n"), &new.join("\n"));
        assert_eq!(
            shown,
            [
                "  ...", "  7", "  8", "  9", "- 10", "+ x", "  11", "  12", "  13"
            ]
        );
        let long = "x\n".repeat(5000) + "a\n" + &"y\n".repeat(5000);
        let other = "x\n".repeat(4999) + "b\n" + &"y\n".repeat(4999);
        assert!(!lines(&long, &other).is_empty());
    }
}
