#include "draw/contact_sheet.h"

#include <algorithm>
#include <cmath>

namespace topomask::cli {
namespace {

constexpr double kSheetMargin = 16, kSheetGap = 6, kSheetTitle = 44, kSheetLabel = 24;
constexpr double kSheetTitleSize = 18, kSheetLabelSize = 12;

// Where the first picture of a row begins.
double sheet_left(const ContactSheet& sheet) {
  return sheet.row_titles.empty() ? kSheetMargin : kSheetMargin + kSheetLabel;
}

// From the top of a row to that of the next.
double row_height(const ContactSheet& sheet, const std::vector<SheetPicture>& row) {
  const bool labelled =
      sheet.row_titles.empty() ||
      std::any_of(row.begin(), row.end(), [](const SheetPicture& tile) { return !tile.label.empty(); });
  return sheet.tile + (labelled ? kSheetLabel : kSheetGap);
}

double sheet_width(const ContactSheet& sheet) {
  std::size_t columns = 1;
  for (const auto& row : sheet.pictures) columns = std::max(columns, row.size());
  const double tiles =
      static_cast<double>(columns) * (sheet.tile + kSheetGap) - kSheetGap + sheet_left(sheet) + kSheetMargin;
  return std::ceil(std::max(tiles, text_width(sheet.title, kSheetTitleSize) + 2 * kSheetMargin));
}

}  // namespace

void draw_contact_sheet(const ContactSheet& sheet, Picture& picture) {
  picture.text({kSheetMargin, kSheetTitle / 2}, sheet.title, {.size = kSheetTitleSize});
  double top = kSheetTitle;
  for (std::size_t number = 0; number < sheet.pictures.size(); ++number) {
    const std::vector<SheetPicture>& row = sheet.pictures[number];
    double left = sheet_left(sheet);
    if (number < sheet.row_titles.size())
      picture.text({kSheetMargin + kSheetLabelSize / 2, top + sheet.tile / 2}, sheet.row_titles[number],
                   {.size = kSheetLabelSize, .anchor = Anchor::middle, .colour = kGrey, .upwards = true});
    for (const SheetPicture& tile : row) {
      picture.image({left, top, sheet.tile, sheet.tile}, tile.rows, tile.columns, tile.pixels);
      if (!tile.label.empty())
        picture.text({left + sheet.tile / 2, top + sheet.tile + kSheetLabel / 2}, tile.label,
                     {.size = kSheetLabelSize, .anchor = Anchor::middle, .colour = kGrey});
      left += sheet.tile + kSheetGap;
    }
    top += row_height(sheet, row);
  }
}

std::vector<Picture::Text> write_contact_sheet(const ContactSheet& sheet, const Provenance& provenance,
                                               const std::string& path) {
  double height = kSheetTitle;
  for (const auto& row : sheet.pictures) height += row_height(sheet, row);
  return write_picture({.width = sheet_width(sheet),
                        .height = height,
                        .caption = sheet.caption,
                        .draw = [&](Picture& picture) { draw_contact_sheet(sheet, picture); }},
                       provenance, path);
}

}  // namespace topomask::cli
