//! The one exception: an `OSError` with the number that kernel LNet would return, the text, and for
//! operations the stage at which they failed.

use lnet_rt::{Errno, NiError, OpError, OpStage, RouteError, TunableError};
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(
    ulnet,
    Error,
    PyOSError,
    "A node, the network or a daemon failed: errno, strerror, and for PUT and GET stage."
);

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    pub(crate) text: String,
    pub(crate) stage: Option<&'static str>,
}

impl Failure {
    pub(crate) fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self { errno, text: text.into(), stage: None }
    }
}

/// The name of a stage.
const fn stage(error: OpError) -> Option<&'static str> {
    let OpError::Operation { stage, .. } = error else { return None };
    match stage {
        OpStage::NoPath => Some("no-path"),
        OpStage::Refused => Some("refused"),
        OpStage::Transmission => Some("transmission"),
        OpStage::Answer => Some("answer"),
        OpStage::NoAnswer => Some("no-answer"),
        // A stage that was added without a name here.
        _ => None,
    }
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Self {
        Self { errno: error.errno(), text: error.to_string(), stage: stage(error) }
    }
}

impl From<NiError> for Failure {
    fn from(error: NiError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<TunableError> for Failure {
    fn from(error: TunableError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<RouteError> for Failure {
    fn from(error: RouteError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)), error.to_string())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| {
            let error = Error::new_err((failure.errno.0, failure.text));
            match error.value(py).setattr("stage", failure.stage) {
                Ok(()) => error,
                Err(e) => e,
            }
        })
    }
}

/// A value that an argument can't have.
pub(crate) fn value(field: &str, given: &str, why: impl core::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{field} {given:?}: {why}"))
}
