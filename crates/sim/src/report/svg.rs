//! The drawing surface for the plotters library: shapes become SVG elements with a class that the style sheet
//! colours.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::{Display, Write};
use std::rc::Rc;

use plotters::style::RGBColor;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    FontTransform,
};

/// The library's whole units per unit of the picture.
pub(super) const UNITS: i32 = 10;

/// Colours stand for classes. This one is the grid behind the curves.
pub(super) const GRID: RGBColor = RGBColor(1, 0, 0);
/// The lines of the axes.
pub(super) const AXIS: RGBColor = RGBColor(2, 0, 0);
/// The labels of the marks.
pub(super) const TICK: RGBColor = RGBColor(3, 0, 0);
/// The names of the axes.
pub(super) const LABEL: RGBColor = RGBColor(4, 0, 0);
/// A series: a line, an area or a dot in the colour of the enclosing group.
pub(super) const SERIES: RGBColor = RGBColor(5, 0, 0);

/// A picture under construction. Clones write into the same picture.
#[derive(Clone)]
pub(super) struct Paper {
    size: (u32, u32),
    out: Rc<RefCell<String>>,
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl Paper {
    /// An empty picture of this size, in units of the picture.
    pub(super) fn new(width: u32, height: u32) -> Paper {
        Paper { size: (width * UNITS as u32, height * UNITS as u32), out: Rc::default() }
    }

    /// Appends elements unchanged.
    pub(super) fn push(&self, elements: &str) {
        self.out.borrow_mut().push_str(elements);
    }

    /// Takes all elements so far.
    pub(super) fn take(&self) -> String {
        self.out.take()
    }

    fn path(&self, class: &str, points: impl IntoIterator<Item = BackendCoord>, end: &str) -> Drawn {
        let mut data = String::new();
        for (at, (x, y)) in points.into_iter().enumerate() {
            let _ = write!(data, "{}{} {}", if at == 0 { "M" } else { "L" }, Unit(x), Unit(y));
        }
        if !data.is_empty() {
            self.push(&format!("<path class=\"{class}\" d=\"{data}{end}\"/>\n"));
        }
        Ok(())
    }
}

/// A length in units of the picture, with one decimal if needed.
struct Unit(i32);

impl Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", f64::from(self.0) / f64::from(UNITS))
    }
}

fn class(color: BackendColor, filled: bool) -> Option<&'static str> {
    match (color.rgb.0, filled) {
        _ if color.alpha == 0.0 => None,
        (1, _) => Some("grid"),
        (2, _) => Some("axis"),
        (3, _) => Some("tick"),
        (4, _) => Some("label"),
        (_, false) => Some("line"),
        (_, true) => Some("area"),
    }
}

impl DrawingBackend for Paper {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, color: BackendColor) -> Drawn {
        self.draw_circle(at, 1, &color, true)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        class(style.color(), false).map_or(Ok(()), |class| self.path(class, path, ""))
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> Drawn {
        class(style.color(), true).map_or(Ok(()), |class| self.path(class, corners, "Z"))
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        (left, top): BackendCoord,
        (right, bottom): BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn {
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
        class(style.color(), fill).map_or(Ok(()), |class| self.path(class, corners, "Z"))
    }

    fn draw_circle<S: BackendStyle>(&mut self, at: BackendCoord, radius: u32, _: &S, _: bool) -> Drawn {
        let radius = Unit(radius as i32);
        self.push(&format!(
            "<circle class=\"dot\" cx=\"{}\" cy=\"{}\" r=\"{radius}\"/>\n",
            Unit(at.0),
            Unit(at.1)
        ));
        Ok(())
    }

    fn draw_text<T: BackendTextStyle>(&mut self, text: &str, style: &T, (x, y): BackendCoord) -> Drawn {
        let Some(class) = class(style.color(), true) else { return Ok(()) };
        let anchor = match style.anchor().h_pos {
            HPos::Left => "start",
            HPos::Center => "middle",
            HPos::Right => "end",
        };
        let down = match style.anchor().v_pos {
            VPos::Top => ".8em",
            VPos::Center => ".35em",
            VPos::Bottom => "-.2em",
        };
        let (x, y) = (Unit(x), Unit(y));
        let turn = match style.transform() {
            FontTransform::None => String::new(),
            FontTransform::Rotate90 => format!(" transform=\"rotate(90 {x} {y})\""),
            FontTransform::Rotate180 => format!(" transform=\"rotate(180 {x} {y})\""),
            FontTransform::Rotate270 => format!(" transform=\"rotate(270 {x} {y})\""),
        };
        let text = escaped(text);
        self.push(&format!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" dy=\"{down}\" text-anchor=\"{anchor}\"{turn}>{text}</text>\n"
        ));
        Ok(())
    }
}

/// Escapes text for XML and HTML, for content and attributes alike. Characters that XML forbids become spaces.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}
