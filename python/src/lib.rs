//! The native half of the Python package `ulnet`: `python/ulnet` gives it the shape that programs see.
//!
//! `wait.rs` is how a call waits: without the interpreter's lock, and so that a signal ends it.
//! `node.rs`, `inbox.rs` and `attachment.rs` are over `lnet_rt`, with the event queue of `libulnet`;
//! `control.rs` is over `lnet_admin`. Bytes to be sent are not copied, bytes that came are copied once.

mod attachment;
mod control;
mod errors;
mod inbox;
mod node;
mod wait;

#[pyo3::pymodule]
mod _ulnet {
    #[pymodule_export]
    use crate::attachment::Attachment;
    #[pymodule_export]
    use crate::control::Control;
    #[pymodule_export]
    use crate::errors::Error;
    #[pymodule_export]
    use crate::inbox::Inbox;
    #[pymodule_export]
    use crate::node::Node;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
