//! Requests as columns: NumPy arrays of Python, and a source of requests for the simulators.

use std::sync::Arc;

use larder_sim::trace::Clock;
use larder_sim::{Fields, Op, Request, Source, SourceError};
use numpy::{Element, PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The arrays that Python gives, one element for each request.
pub(crate) struct Arrays<'py> {
    pub(crate) keys: Bound<'py, PyAny>,
    pub(crate) sizes: Option<Bound<'py, PyAny>>,
    pub(crate) times: Option<Bound<'py, PyAny>>,
    pub(crate) ops: Option<Bound<'py, PyAny>>,
    pub(crate) ttls: Option<Bound<'py, PyAny>>,
    pub(crate) penalties_us: Option<Bound<'py, PyAny>>,
    pub(crate) key_sizes: Option<Bound<'py, PyAny>>,
}

/// The fields of the requests. A column that is not known is empty.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    keys: Vec<u64>,
    sizes: Vec<u32>,
    key_sizes: Vec<u16>,
    times_s: Vec<u32>,
    ops: Vec<u8>,
    ttls_s: Vec<u32>,
    penalties_us: Vec<u32>,
    pub(crate) fields: Fields,
    /// Remarks for the user.
    pub(crate) notices: Vec<String>,
}

impl Arrays<'_> {
    /// Copies the arrays.
    ///
    /// # Errors
    /// A `ValueError` that names the array and what is wrong with it: its shape, its type, its length, or a number.
    pub(crate) fn read(&self) -> PyResult<Columns> {
        let keys = numbers::<u64>("keys", &self.keys, u64::MAX)?;
        let length = keys.len();
        let fields = Fields {
            times: self.times.is_some(),
            sizes: self.sizes.is_some(),
            ops: self.ops.is_some(),
            ttls: self.ttls.is_some(),
            penalties: self.penalties_us.is_some(),
        };
        let mut columns = Columns {
            keys,
            sizes: column("sizes", &self.sizes, length, u32::MAX)?,
            key_sizes: column("key_sizes", &self.key_sizes, length, u16::MAX)?,
            ops: column("ops", &self.ops, length, Op::ALL.len() as u8 - 1)?,
            ttls_s: column("ttls", &self.ttls, length, u32::MAX)?,
            penalties_us: column("penalties_us", &self.penalties_us, length, u32::MAX)?,
            fields,
            ..Columns::default()
        };
        let mut clock = Clock::default();
        let at = |timestamp| {
            let late =
                || PyValueError::new_err(format!("times: {timestamp} is 2^32 s or more after the first"));
            clock.at(timestamp).ok_or_else(late)
        };
        columns.times_s =
            column("times", &self.times, length, u64::MAX)?.into_iter().map(at).collect::<PyResult<_>>()?;
        columns.notices.extend(clock.notice("times"));
        Ok(columns)
    }
}

/// The numbers of an array that may be there.
fn column<T: TryFrom<u64> + Into<u64>>(
    name: &str,
    array: &Option<Bound<'_, PyAny>>,
    length: usize,
    most: T,
) -> PyResult<Vec<T>> {
    let Some(array) = array else { return Ok(Vec::new()) };
    let numbers = numbers(name, array, most)?;
    if numbers.len() != length {
        let why = format!("{name}: has {} elements, and keys has {length}", numbers.len());
        return Err(PyValueError::new_err(why));
    }
    Ok(numbers)
}

/// The numbers of an array, or of what NumPy makes an array of; each is from 0 to `most`.
fn numbers<T: TryFrom<u64> + Into<u64>>(name: &str, array: &Bound<'_, PyAny>, most: T) -> PyResult<Vec<T>> {
    let wrong = |why: String| PyValueError::new_err(format!("{name}: {why}"));
    let array = array.py().import("numpy")?.call_method1("asarray", (array,))?;
    let array = array.cast_into::<PyUntypedArray>()?;
    if array.ndim() != 1 {
        return Err(wrong(format!("needs an array of one dimension, not of {}", array.ndim())));
    }
    let most = most.into();
    match array.dtype().kind() {
        _ if array.is_empty() => Ok(Vec::new()),
        b'u' => checked::<u64, T>(&array, "uint64", most).map_err(wrong),
        b'i' => checked::<i64, T>(&array, "int64", most).map_err(wrong),
        _ => Err(wrong(format!("needs an array of whole numbers, not of {}", array.dtype()))),
    }
}

/// The numbers of an array, which is converted to `wide`, the NumPy name of `S`.
fn checked<S, T>(array: &Bound<'_, PyUntypedArray>, wide: &str, most: u64) -> Result<Vec<T>, String>
where
    S: Element + Copy + std::fmt::Display + TryInto<u64>,
    T: TryFrom<u64>,
{
    let array = array.call_method1("astype", (wide,)).map_err(|error| error.to_string())?;
    let array = array.cast_into::<PyArray1<S>>().map_err(|error| error.to_string())?.readonly();
    let checked = |(at, &number): (usize, &S)| {
        let small = number.try_into().ok().filter(|number| *number <= most);
        let small = small.and_then(|number| T::try_from(number).ok());
        small.ok_or_else(|| format!("{number} at index {at} is not from 0 to {most}"))
    };
    array.as_array().iter().enumerate().map(checked).collect()
}

impl Columns {
    /// No requests yet, of which these fields are known.
    pub(crate) fn new(fields: Fields) -> Columns {
        Columns { fields, ..Columns::default() }
    }

    /// Adds a request.
    pub(crate) fn push(&mut self, request: &Request) {
        self.keys.push(request.key);
        if self.fields.sizes {
            self.sizes.push(request.value_bytes);
            self.key_sizes.push(request.key_bytes);
        }
        if self.fields.times {
            self.times_s.push(request.time_s);
        }
        if self.fields.ops {
            self.ops.push(request.op as u8);
        }
        if self.fields.ttls {
            self.ttls_s.push(request.ttl_s);
        }
        if self.fields.penalties {
            self.penalties_us.push(request.penalty_us);
        }
    }

    fn request(&self, at: usize) -> Request {
        fn of<T: Copy + Default>(column: &[T], at: usize) -> T {
            column.get(at).copied().unwrap_or_default()
        }
        Request {
            key: of(&self.keys, at),
            time_s: of(&self.times_s, at),
            value_bytes: of(&self.sizes, at),
            ttl_s: of(&self.ttls_s, at),
            penalty_us: of(&self.penalties_us, at),
            client: 0,
            key_bytes: of(&self.key_sizes, at),
            op: Op::ALL.get(usize::from(of(&self.ops, at))).copied().unwrap_or_default(),
        }
    }

    /// The known columns as arrays, by the names that the functions of the module take.
    pub(crate) fn into_arrays(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let arrays = PyDict::new(py);
        arrays.set_item("keys", PyArray1::from_vec(py, self.keys))?;
        if self.fields.sizes {
            arrays.set_item("sizes", PyArray1::from_vec(py, self.sizes))?;
            arrays.set_item("key_sizes", PyArray1::from_vec(py, self.key_sizes))?;
        }
        if self.fields.times {
            arrays.set_item("times", PyArray1::from_vec(py, self.times_s))?;
        }
        if self.fields.ops {
            arrays.set_item("ops", PyArray1::from_vec(py, self.ops))?;
        }
        if self.fields.ttls {
            arrays.set_item("ttls", PyArray1::from_vec(py, self.ttls_s))?;
        }
        if self.fields.penalties {
            arrays.set_item("penalties_us", PyArray1::from_vec(py, self.penalties_us))?;
        }
        Ok(arrays)
    }
}

/// The requests of columns, from the first one on.
pub(crate) struct Reader {
    columns: Arc<Columns>,
    at: usize,
}

impl Reader {
    pub(crate) fn new(columns: &Arc<Columns>) -> Reader {
        Reader { columns: columns.clone(), at: 0 }
    }
}

impl Source for Reader {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let taken = most.min(self.columns.keys.len() - self.at);
        into.extend((self.at..self.at + taken).map(|at| self.columns.request(at)));
        self.at += taken;
        Ok(taken)
    }

    fn fields(&self) -> Fields {
        self.columns.fields
    }

    fn describe(&self) -> String {
        "the arrays".to_owned()
    }

    fn done_ratio(&self) -> Option<f64> {
        Some(self.at as f64 / self.columns.keys.len().max(1) as f64)
    }

    fn requests_hint(&self) -> Option<u64> {
        Some(self.columns.keys.len() as u64)
    }
}
