#include "draw/contact_sheet.h"

#include <algorithm>
#include <cmath>

namespace topomask::cli {
namespace {

constexpr double kSheetMargin = 16, kSheetGap = 6, kSheetTitle = 44, kSheetLabel = 24;
constexpr double kSheetTitleSize = 18, kSheetLabelSize = 12;

double sheet_width(const ContactSheet& sheet) {
  std::size_t columns = 1;
  for (const auto& row : sheet.pictures) columns = std::max(columns, row.size());
  const double tiles = static_cast<double>(columns) * (sheet.tile + kSheetGap) - kSheetGap + 2 * kSheetMargin;
  return std::ceil(std::max(tiles, text_width(sheet.title, kSheetTitleSize) + 2 * kSheetMargin));
}

}  // namespace

void draw_contact_sheet(const ContactSheet& sheet, Picture& picture) {
  picture.text({kSheetMargin, kSheetTitle / 2}, sheet.title, {.size = kSheetTitleSize});
  double top = kSheetTitle;
  for (const std::vector<SheetPicture>& row : sheet.pictures) {
    double left = kSheetMargin;
    for (const SheetPicture& tile : row) {
      picture.image({left, top, sheet.tile, sheet.tile}, tile.rows, tile.columns, tile.pixels);
      picture.text({left + sheet.tile / 2, top + sheet.tile + kSheetLabel / 2}, tile.label,
                   {.size = kSheetLabelSize, .anchor = Anchor::middle, .colour = kGrey});
      left += sheet.tile + kSheetGap;
    }
    top += sheet.tile + kSheetLabel;
  }
}

std::vector<Picture::Text> write_contact_sheet(const ContactSheet& sheet, const Provenance& provenance,
                                               const std::string& path) {
  const double height = kSheetTitle + static_cast<double>(sheet.pictures.size()) * (sheet.tile + kSheetLabel);
  return write_picture({.width = sheet_width(sheet),
                        .height = height,
                        .caption = sheet.caption,
                        .draw = [&](Picture& picture) { draw_contact_sheet(sheet, picture); }},
                       provenance, path);
}

}  // namespace topomask::cli
