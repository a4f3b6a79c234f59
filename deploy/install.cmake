# What `make install` puts into a system.
include(GNUInstallDirs)

# ---- man pages and completion, made from the table of options ----------------------------------------------------
add_executable(penstock_manual EXCLUDE_FROM_ALL server/manual/main.c)
target_link_libraries(penstock_manual manual)
set_target_properties(penstock_manual PROPERTIES LINKER_LANGUAGE C)
set(made ${CMAKE_BINARY_DIR}/manual)
add_custom_command(OUTPUT ${made}.made DEPENDS penstock_manual
                   COMMAND ${CMAKE_COMMAND} -E rm -rf ${made}
                   COMMAND penstock_manual ${made}
                   COMMAND sh -c "gzip -9nr ${made}/man1 ${made}/man5"
                   COMMAND ${CMAKE_COMMAND} -E touch ${made}.made)
add_custom_target(installed DEPENDS ${made}.made penstock)

install(TARGETS penstock)
install(DIRECTORY ${made}/man1 ${made}/man5 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${made}/bash/penstock DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${made}/zsh/_penstock DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${made}/fish/penstock.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# ---- units and the options of the service. Their paths depend on the prefix, so they are written when they are installed.
if(TARGET kernels_cuda)
    set(unit_devices "the GPU's driver maps memory that it writes and executes, and needs its devices\nPrivateDevices=no\nDevicePolicy=auto")
else()
    set(unit_devices "a CPU needs no device, and no memory that is both written and executed\nPrivateDevices=yes\nDevicePolicy=closed\nMemoryDenyWriteExecute=yes")
endif()
set(PENSTOCK_UNITS lib/systemd/system CACHE STRING "folder of systemd's units, under the prefix unless it is absolute")
install(CODE "
    set(PENSTOCK_BIN ${CMAKE_INSTALL_BINDIR})
    set(PENSTOCK_UNITS ${PENSTOCK_UNITS})
    set(PENSTOCK_DEVICES \"${unit_devices}\")
    set(PENSTOCK_SOURCE ${CMAKE_SOURCE_DIR})
    set(PENSTOCK_BUILD ${CMAKE_BINARY_DIR})")
install(SCRIPT deploy/install_units.cmake)

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/penstock)
