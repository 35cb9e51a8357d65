//! `include/ulnet.h` is the one that the sources make. `ULNET_BLESS=1` writes it anew.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::path::Path;

use cbindgen::{Builder, Config, Language, Style};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// What stands above all.
const HEAD: &str = "\
/*
 * libulnet: LNet, the network layer of Lustre, in user space.
 *
 * Made from host/libulnet/src/abi; not to be edited. libulnet(3) is the introduction.
 *
 * Results: functions that return int return 0 (or what they say), or a negative error number; then
 * ulnet_last_error() has the text, for this thread. Results behind pointers are written on success only.
 *
 * Handles (ulnet_node *, ...) may be used by any thread, each also by several at once. They are looked
 * up, never followed: NULL is an error (EINVAL), and so is a handle that is closed or of another kind
 * (EBADF). The program ends each of them; ending one twice is an error.
 *
 * Strings end with NUL, are UTF-8, and are not kept. Structures are not kept. A structure that is all 0
 * is the default, and fields called reserved must be 0.
 *
 * Memory given to ulnet_put or ulnet_get is the program's again when the call returns; given to
 * ulnet_put_start or ulnet_get_start, when the event is taken or the queue closed; given to ulnet_attach,
 * when ulnet_detach has returned. It is never copied. After fork, the child must not use the library.
 */";

#[test]
fn the_header_is_that_of_the_sources() {
    let config = Config {
        language: Language::C,
        header: Some(HEAD.to_owned()),
        include_guard: Some("ULNET_H".to_owned()),
        cpp_compat: true,
        no_includes: true,
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        usize_is_size_t: true,
        style: Style::Both,
        line_length: 100,
        ..Config::default()
    };
    let mut builder = Builder::new().with_config(config);
    let mut sources = 0;
    for name in ["types", "errors", "config", "node", "queue", "operation", "inbox", "attachment"] {
        builder = builder.with_src(Path::new(HERE).join(format!("src/abi/{name}.rs")));
        sources += 1;
    }
    // `mod.rs` and `raw.rs` have nothing for C.
    assert_eq!(fs::read_dir(Path::new(HERE).join("src/abi")).unwrap().count(), sources + 2);
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = Path::new(HERE).join("include/ulnet.h");
    if std::env::var_os("ULNET_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "include/ulnet.h is old: ULNET_BLESS=1 cargo test -p libulnet makes it");
    let entries = made.matches("\nint ulnet_").count();
    assert!(entries > 30, "only {entries} entries in the header");
}
