//! The name that programs find the shared library by: its number changes when programs that were built
//! against an earlier one would no longer work.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libulnet.so.0");
    }
}
