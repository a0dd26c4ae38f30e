package device

const usbmuxdRemedy = "sudo apt-get install -y usbmuxd && sudo systemctl start usbmuxd"
