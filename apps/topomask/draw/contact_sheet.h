// Contact sheets: pictures side by side in rows, each with a label.
#pragma once

#include <string>
#include <vector>

#include "draw/picture.h"

namespace topomask::cli {

struct SheetPicture {
  std::string label;  // below the picture
  int rows = 0, columns = 0;
  std::vector<Colour> pixels;  // [rows, columns]
};

struct ContactSheet {
  std::string title;
  std::vector<std::vector<SheetPicture>> pictures;  // in rows
  std::string caption;
  double tile = 128;  // width and height of a picture
  // Beside the rows, read from below; empty: none. Rows without any label leave no room for them.
  std::vector<std::string> row_titles = {};
};

void draw_contact_sheet(const ContactSheet& sheet, Picture& picture);
// Returns the texts of the picture; `path` ends in .png or .svg.
std::vector<Picture::Text> write_contact_sheet(const ContactSheet& sheet, const Provenance& provenance,
                                               const std::string& path);

}  // namespace topomask::cli
