# Writes the header with the commit that is built. It runs in every build, and changes the header only if the commit has
# changed, so that nothing is compiled again without need.
if(NOT COMMIT)
    execute_process(COMMAND git describe --always --dirty --exclude * WORKING_DIRECTORY ${SOURCE}
                    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT COMMIT)
    set(COMMIT unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define PENSTOCK_COMMIT \"${COMMIT}\"\n")
