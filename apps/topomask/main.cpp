#include "program.h"

int main(int argc, char** argv) {
  return topomask::cli::run_program(argc, argv);
}
