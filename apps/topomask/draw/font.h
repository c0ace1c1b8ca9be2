// A 5 x 7 bitmap font for the labels of pictures, so that drawing needs no font files.
#pragma once

namespace topomask::cli {

constexpr int kGlyphWidth = 5, kGlyphHeight = 7;
constexpr int kGlyphRows = 9;  // with the two rows below the line that g, j, p, q and y reach into
constexpr int kGlyphAdvance = kGlyphWidth + 1;

// Whether the cell is inked; characters outside printable ASCII are blank.
bool glyph_cell(char character, int row, int column);

}  // namespace topomask::cli
