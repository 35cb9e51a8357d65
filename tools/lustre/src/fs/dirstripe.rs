//! Directories over several metadata targets, as `ulnet lustre getstripe` shows them: which targets have
//! one and its names, and what the directories get that are made in it.

use anyhow::Result;
use lustre_rt::Mount;
use lustre_rt::visitor::{DirDefault, DirHash, DirStripes, Node};
use serde_json::{Value, json};

/// Any metadata target.
const ANY: u32 = u32::MAX;

/// The name of a rule, or its number where it has none; nothing for a directory that is not striped.
fn hash(hash: u32) -> Value {
    match (hash, DirHash::name_of(hash)) {
        (0, _) => Value::Null,
        (_, Some(name)) => name.into(),
        (hash, None) => hash.into(),
    }
}

fn stripes(found: &DirStripes) -> Value {
    let stripes = found.stripes.iter();
    let stripes = stripes.map(|(mdt, fid)| json!({ "mdt": mdt, "fid": fid.to_string() }));
    json!({
        "mdt": found.mdt,
        "stripe_count": found.stripes.len(),
        "hash": hash(found.hash),
        "stripes": stripes.collect::<Vec<_>>(),
    })
}

fn default(found: &DirDefault) -> Value {
    json!({
        "mdt": (found.master != ANY).then_some(found.master),
        "stripe_count": found.stripe_count,
        "hash": hash(found.hash),
        // Numbers of levels as the layout has them: 0 without end, 1 for this one, 255 for none.
        "inherit": found.inherit,
        "inherit_rr": found.inherit_rr,
    })
}

/// Where a directory is, and its default for those that are made in it.
///
/// # Errors
/// A layout that can't be read, no answer.
pub(super) async fn shown(mount: &Mount, node: &Node) -> Result<Value> {
    let found = mount.dir_stripes(node).await?;
    let by_default = mount.dir_default(node).await?;
    let by_default = by_default.as_ref().map(default);
    Ok(json!({ "directory": stripes(&found), "directory_default": by_default }))
}

#[cfg(test)]
mod tests {
    use lustre_wire::Fid;

    use super::*;

    #[test]
    fn a_striped_directory_is_shown_with_rule_and_stripes() {
        let fid = |seq| Fid { seq, oid: 4, ver: 0 };
        let both = vec![(0, fid(0x2_0000_0400)), (1, fid(0x2_4000_0401))];
        let found = stripes(&DirStripes { mdt: 0, hash: 2, stripes: both });
        let expected = json!({ "mdt": 0, "stripe_count": 2, "hash": "fnv_1a_64", "stripes": [
            { "mdt": 0, "fid": "[0x200000400:0x4:0x0]" },
            { "mdt": 1, "fid": "[0x240000401:0x4:0x0]" },
        ] });
        assert_eq!(found, expected);
        let plain = stripes(&DirStripes { mdt: 1, hash: 0, stripes: Vec::new() });
        assert_eq!((&plain["mdt"], &plain["hash"]), (&json!(1), &Value::Null));
        let unknown = stripes(&DirStripes { mdt: 1, hash: 9, stripes: Vec::new() });
        assert_eq!(unknown["hash"], 9);
    }

    #[test]
    fn a_default_without_a_target_has_none() {
        let any =
            DirDefault { master: ANY, stripe_count: 1, inherit_rr: 3, ..DirDefault::default() };
        let found = default(&any);
        assert_eq!((&found["mdt"], &found["inherit_rr"]), (&Value::Null, &json!(3)));
        assert_eq!(default(&DirDefault { master: 1, ..any })["mdt"], 1);
    }
}
