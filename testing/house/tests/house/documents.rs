//! Documents: a link to a file of the repository leads to one.

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
