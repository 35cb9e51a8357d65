//! Documents: a link to a file of the repository leads to one, and figures have one home.

use std::path::Path;

use crate::workspace::{files, root, text};

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in files("", "md") {
        let text = text(&page);
        for rest in text.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.contains(' ') {
                continue;
            }
            let dir = page.parent().unwrap_or_else(|| Path::new(""));
            if !root().join(dir).join(target).exists() {
                broken.push(format!("{} → {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn figures_of_the_readme_stand_in_performance() {
    let (readme, home) = (text("README.md"), text("docs/performance.md"));
    let bold = readme.split("**").skip(1).step_by(2);
    let figures: Vec<_> = bold.filter(|t| t.starts_with(|c: char| c.is_ascii_digit())).collect();
    assert!(figures.len() >= 8, "only {figures:?}");
    let strange: Vec<_> = figures.iter().filter(|figure| !home.contains(**figure)).collect();
    assert!(strange.is_empty(), "not in docs/performance.md: {strange:?}");
}
